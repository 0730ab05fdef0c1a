"""Run a model over a dataset in a Beam pipeline, and write what it returns as another dataset.

Usage: python examples/embed_shards.py DATASET EMBEDDINGS [BEAM PIPELINE OPTIONS]   (images with labels)

The "model" is a random projection of a small copy of each image; images of one color are left out.
"""

import io
import sys

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from PIL import Image

from tfshards import prep

SIDE, SIZE = 8, 32


class Embed(beam.DoFn):
    """Yields the embedding of an image, float32 of shape (32,), with its label."""

    def setup(self):
        """Load the model; Beam calls this once for each worker thread, not for each example."""
        weights = np.random.default_rng(0).normal(size=(SIDE * SIDE * 3, SIZE))
        # sums of integers do not depend on the order in which a library adds them
        self.weights = np.round(1000 * weights).astype(np.int64)

    def process(self, element):
        """Yield one element, or none."""
        key, features = element
        with Image.open(io.BytesIO(features["image"])) as image:
            pixels = np.asarray(image.convert("RGB").resize((SIDE, SIDE)), np.int64)
        if np.ptp(pixels):
            embedding = (pixels.ravel() @ self.weights).astype(np.float32)
            yield key, {"embedding": embedding, "label": features["label"]}


def main(dataset: str, embeddings: str, *beam_args: str) -> None:
    """Run the pipeline, on Beam's local runner unless the options name another, and print the dataset."""
    class_names = prep.info(dataset).schema.class_names
    with beam.Pipeline(options=PipelineOptions(beam_args or ["--runner=FnApiRunner"])) as pipeline:
        _ = (
            pipeline
            | prep.ReadShards(dataset, "train", select=["image", "label"])
            | beam.ParDo(Embed())
            | prep.WriteShards(embeddings, class_names=class_names or None, shards=4)
        )
    print(prep.info(embeddings))


if __name__ == "__main__":
    main(*sys.argv[1:])
