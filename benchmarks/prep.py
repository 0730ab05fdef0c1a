"""Compare building shards: tfshards, TFDS, and plain loops over the files.

    python benchmarks/prep.py photos --photos FOLDER --copies 8
    python benchmarks/prep.py images --photos FOLDER --copies 4
    python benchmarks/prep.py arrays

The first case stores photos as they are, the second checks and converts them, the third stores arrays of
784 bytes. Every contestant runs in its own process, in turns with the others, on files in the page cache.
Photos are copied under different names, so that 3,000 of them make a dataset of 24,000.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import inputs
import measure
from measure import Measurement

SHARDS = 16
PACKAGES = ("tfshards", "apache-beam", "tensorflow-datasets", "tensorflow", "pillow", "numpy")
# For each case its contestants: words of tfshards, or a function of this file with its arguments.
CASES = {
    "photos": {
        "tfshards, --check none": "build images SOURCE OUT --shards 16 --check none",
        "tfshards, default check": "build images SOURCE OUT --shards 16",
        "TFDS, in process": "tfds_photos SOURCE OUT",
        "TFDS on Beam (local runner)": "tfds_photos_on_beam SOURCE OUT",
        "read and append, no format": "append SOURCE OUT",
    },
    "images": {
        "tfshards, --check none": "build images SOURCE OUT --shards 16 --check none",
        "tfshards, default check": "build images SOURCE OUT --shards 16",
        "short side 256": "build images SOURCE OUT --shards 16 --resize short=256",
        "short side 256, PNG": "build images SOURCE OUT --shards 16 --resize short=256 --format png",
        "read with Python": "read SOURCE",
        "decode with Pillow": "decode SOURCE",
    },
    "arrays": {
        "tfshards": "build arrays SOURCE/image.npy SOURCE/label.npy OUT --shards 16",
        "TFDS, in process": "tfds_arrays SOURCE OUT",
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--photos", type=Path, help="images in class folders, at any depth")
    parser.add_argument("--copies", type=int, default=8, help="copies of each photo (default: 8)")
    parser.add_argument("--examples", type=int, default=60_000, help="number of arrays (default: 60,000)")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs per contestant (default: 5)")
    parser.add_argument("--only", nargs="+", help="beginnings of names of contestants (default: all)")
    measure.add_json(parser)
    options = parser.parse_args()
    contestants = CASES[options.case]
    names = [name for name in contestants if not options.only or name.startswith(tuple(options.only))]
    with tempfile.TemporaryDirectory(prefix="tfshards-prep-") as folder:
        source, out = Path(folder).resolve() / "source", Path(folder).resolve() / "out"
        if options.case == "arrays":
            inputs.write_arrays(source, options.examples)
        elif options.photos is None:
            parser.error("--photos is required")
        else:
            inputs.copy_photos(options.photos, source, options.copies)
        count, size = inputs.size_of(source)
        taken = measure.rounds(names, options.rounds, lambda name: run(contestants[name], source, out))
    amount = options.examples if options.case == "arrays" else count
    print(f"\n{measure.compared(taken, amount, 'examples')}")
    print(f"\n{amount:,} examples, {size / measure.MB:,.0f} MB. {measure.HOW}")
    print(measure.footnote(PACKAGES))
    measure.save(options.json, measure.tables_of(taken), PACKAGES)


def run(words: str, source: Path, out: Path) -> Measurement:
    """Run one contestant on files that are in the page cache, and check that it wrote all of them."""
    for path in files(source):
        path.read_bytes()
    # the files of the previous run must not be written to the disk during this one
    os.sync()
    values = [word.replace("SOURCE", str(source)).replace("OUT", str(out)) for word in words.split()]
    command = inputs.tfshards(*values) if values[0] == "build" else [sys.executable, __file__, *values]
    result = measure.measure(command, source.parent)
    if out.exists():
        written, size = (inputs.size_of(folder)[1] for folder in (out, source))
        if written < size and "--resize" not in words:
            raise SystemExit(f"{words} wrote {written} bytes from {size} bytes")
        shutil.rmtree(out)
    return result


def files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


# The contestants; each imports only what it needs


def append(source: str, out: str) -> None:
    """Read every file and append it to one of the shards: the minimum that every conversion does."""
    os.makedirs(out)
    shards = [open(os.path.join(out, f"{index}.tfrecord"), "wb") for index in range(SHARDS)]  # noqa: SIM115
    for number, path in enumerate(files(Path(source))):
        shards[number % SHARDS].write(path.read_bytes())
    for file in shards:
        file.close()


def read(source: str) -> None:
    _in_threads(Path.read_bytes, source)


def decode(source: str) -> None:
    """Decode every file, on as many threads as there are cores, as in a build."""
    from PIL import Image

    _in_threads(lambda path: Image.open(path).load(), source)


def _in_threads(work: object, source: str) -> None:
    # if two cores are the hyperthreads of one, the same work takes more CPU time on both than on one
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(work, files(Path(source)), chunksize=16))


def tfds_arrays(source: str, out: str) -> None:
    """Convert two arrays with TFDS, stored as tfshards stores them: raw bytes, an integer, a key.

    Raw bytes are the fastest encoding of TFDS: its default for tensors takes twice the time, PNG more.
    """
    import numpy as np
    import tensorflow_datasets as tfds

    image, label = (np.load(f"{source}/{name}.npy") for name in ("image", "label"))
    features = {
        "image": tfds.features.Tensor(shape=image.shape[1:], dtype=image.dtype, encoding="bytes"),
        "label": tfds.features.Scalar(label.dtype),
        "key": tfds.features.Text(),
    }

    def rows() -> Iterator[tuple[int, dict[str, object]]]:
        for row in range(len(image)):
            yield row, {"image": image[row], "label": label[row], "key": str(row)}

    _prepare(features, rows, out)


def tfds_photos(source: str, out: str, on_beam: bool = False) -> None:
    """Convert class folders as TFDS's guide shows it, with the features that tfshards writes."""
    import tensorflow_datasets as tfds

    classes = sorted(os.listdir(source))
    keys = [f"{label}/{name}" for label in classes for name in sorted(os.listdir(f"{source}/{label}"))]
    features = {
        "image": tfds.features.Image(),
        "label": tfds.features.ClassLabel(names=classes),
        "key": tfds.features.Text(),
    }

    def example(key: str) -> tuple[str, dict[str, str]]:
        return key, {"image": f"{source}/{key}", "label": key.partition("/")[0], "key": key}

    if not on_beam:
        _prepare(features, lambda: map(example, keys), out)
        return
    import apache_beam as beam

    # DirectRunner uses this class, but would first look for Prism on the internet.
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    _prepare(features, lambda: beam.Create(keys) | beam.Map(example), out, FnApiRunner())


def tfds_photos_on_beam(source: str, out: str) -> None:
    """Convert class folders in the same way as a Beam pipeline, on Beam's local runner."""
    tfds_photos(source, out, on_beam=True)


def _prepare(features: dict, examples: object, out: str, runner: object = None) -> None:
    import tensorflow_datasets as tfds

    class Examples(tfds.core.GeneratorBasedBuilder):
        """The examples of one split."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            return examples()

    tfds.disable_progress_bar()
    # These datasets are not in Google's bucket; do not ask for them there.
    config = tfds.download.DownloadConfig(num_shards=SHARDS, beam_runner=runner, try_download_gcs=False)
    Examples(data_dir=out).download_and_prepare(download_config=config)


CONTESTANTS = (append, read, decode, tfds_arrays, tfds_photos, tfds_photos_on_beam)

if __name__ == "__main__":
    called = {function.__name__: function for function in CONTESTANTS}.get(sys.argv[1])
    if called:
        called(*sys.argv[2:])
    else:
        main()
