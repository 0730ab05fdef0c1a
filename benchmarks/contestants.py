"""The programs that tfshards is compared with; each runs in its own process and imports only what it needs.

Usage: python benchmarks/contestants.py copy SOURCE OUT SHARDS
"""

import os
import sys
import time


def copy_loop(source: str, out: str, shards: int) -> None:
    """Read every file and append it to one of the shards: the minimum that every conversion does."""
    os.makedirs(out)
    files = [open(os.path.join(out, f"{index}.tfrecord"), "wb") for index in range(shards)]  # noqa: SIM115
    number = 0
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in sorted(names):
            with open(os.path.join(folder, name), "rb") as file:
                files[number % shards].write(file.read())
            number += 1
    for file in files:
        file.close()


def tfds_photos(source: str, out: str, shards: int) -> None:
    """Convert class folders as TFDS's guide shows it, with the features that tfshards writes."""
    _photos(source, out, shards, on_beam=False)


def tfds_photos_on_beam(source: str, out: str, shards: int) -> None:
    """Convert class folders in the same way as a Beam pipeline, on Beam's local runner."""
    _photos(source, out, shards, on_beam=True)


def tfds_arrays(images: str, labels: str, out: str, shards: int) -> None:
    """Convert two arrays with TFDS, stored as tfshards stores them: raw bytes, an integer, a key.

    Raw bytes are the fastest encoding of TFDS: its default for tensors takes twice the time, PNG more.
    """
    _arrays(images, labels, out, shards, with_key=True)


def tfds_arrays_without_key(images: str, labels: str, out: str, shards: int) -> None:
    """Convert two arrays without a key, so that an example holds less than tfshards stores."""
    _arrays(images, labels, out, shards, with_key=False)


def tfshards_arrays(images: str, labels: str, out: str, shards: int) -> None:
    """Convert two arrays with tfshards from Python, to measure the call without imports."""
    from tfshards.prep import Arrays
    from tfshards.prep.building.build import build

    before = time.perf_counter()
    build(Arrays([f"image={images}", f"label={labels}"]), out, shards=shards)
    print(f"seconds {time.perf_counter() - before:.3f}")


def _arrays(images: str, labels: str, out: str, shards: int, with_key: bool) -> None:
    import numpy as np
    import tensorflow_datasets as tfds

    image, label = np.load(images), np.load(labels)

    class Arrays(tfds.core.GeneratorBasedBuilder):
        """Two arrays, row by row."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "image": tfds.features.Tensor(shape=image.shape[1:], dtype=image.dtype, encoding="bytes"),
                "label": tfds.features.Scalar(label.dtype),
            }
            if with_key:
                features["key"] = tfds.features.Text()
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for row in range(len(image)):
                example = {"image": image[row], "label": label[row]}
                yield row, {**example, "key": str(row)} if with_key else example

    _prepare(Arrays(data_dir=out), shards)


def _photos(source: str, out: str, shards: int, on_beam: bool) -> None:
    import tensorflow_datasets as tfds

    classes = sorted(os.listdir(source))
    keys = [f"{label}/{name}" for label in classes for name in sorted(os.listdir(f"{source}/{label}"))]

    def example(key):
        return key, {"image": f"{source}/{key}", "label": key.partition("/")[0], "key": key}

    class Photos(tfds.core.GeneratorBasedBuilder):
        """A folder of class folders."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(),
                "label": tfds.features.ClassLabel(names=classes),
                "key": tfds.features.Text(),
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            if not on_beam:
                return map(example, keys)
            import apache_beam as beam

            return beam.Create(keys) | beam.Map(example)

    runner = None
    if on_beam:
        # DirectRunner uses this class, but would first look for Prism on the internet.
        from apache_beam.runners.portability.fn_api_runner import FnApiRunner

        runner = FnApiRunner()
    _prepare(Photos(data_dir=out), shards, runner)


def _prepare(builder, shards: int, runner=None) -> None:
    import tensorflow  # noqa: F401  # otherwise TFDS imports it while the time is measured
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    # These datasets are not in Google's bucket; do not ask for them there.
    config = tfds.download.DownloadConfig(num_shards=shards, beam_runner=runner, try_download_gcs=False)
    before = time.perf_counter()
    builder.download_and_prepare(download_config=config)
    print(f"seconds {time.perf_counter() - before:.3f}")


CONTESTANTS = {
    "copy": copy_loop,
    "tfds": tfds_photos,
    "tfds-beam": tfds_photos_on_beam,
    "tfds-arrays": tfds_arrays,
    "tfds-arrays-without-key": tfds_arrays_without_key,
    "tfshards-arrays": tfshards_arrays,
}

if __name__ == "__main__":
    CONTESTANTS[sys.argv[1]](*sys.argv[2:-1], int(sys.argv[-1]))
