"""Write shards from your own Beam pipeline: the four quarters of each image, with the class of its folder.

Usage: python examples/write_shards.py FOLDER DATASET [BEAM PIPELINE OPTIONS]   (class folders of images)
"""

import io
import sys
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from PIL import Image

from tfshards import prep


def quarters(path):
    """Yield an element for each quarter of an image: its key, and its features by name."""
    with Image.open(path) as image:
        width, height = image.width // 2, image.height // 2
        for number in range(4):
            left, top = number % 2 * width, number // 2 * height
            file = io.BytesIO()
            image.crop((left, top, left + width, top + height)).save(file, "PNG")
            key = f"{path.parent.name}/{path.stem}-{number}.png"
            yield key, {"image": file.getvalue(), "label": path.parent.name, "quarter": number}


def main(folder: str, dataset: str, *beam_args: str) -> None:
    """Run the pipeline, on Beam's local runner unless the options name another, and print the dataset."""
    options = prep.Options(splits={"train": 0.8, "test": 0.2}, stratify=True)
    with beam.Pipeline(options=PipelineOptions(beam_args or ["--runner=FnApiRunner"])) as pipeline:
        result = (
            pipeline
            | beam.Create(sorted(Path(folder).absolute().rglob("*.png")))
            | beam.FlatMap(quarters)
            | prep.WriteShards(
                dataset,
                shards={"train": 8, "test": 2},
                options=options,
            )
        )
        _ = result.rejected | "Rejected" >> beam.Map(print)
    print(prep.info(dataset))


if __name__ == "__main__":
    main(*sys.argv[1:])
