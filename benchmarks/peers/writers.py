"""Conversions of one folder of PNG files by each tool, and how their results are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

SHARDS = 8


@dataclass(frozen=True)
class Writer:
    """How a tool converts a folder and how its reader lists what is in the result.

    Attributes:
        load: imports the tool; called once, before any process is forked.
        convert: the conversion, called with the source and the output; called again after a crash.
        read: returns the key and the image of each example; an error means that there is no dataset.
    """

    load: Callable[[], object]
    convert: Callable[[Path, Path], None]
    read: Callable[[Path], Iterable[tuple[str, bytes]]]


def inputs(source: Path) -> list[str]:
    """Return the keys of all files, in order."""
    return sorted(str(path.relative_to(source)) for path in source.glob("*/*.png"))


# tfshards: what the command `tfshards build images` calls.


def _tfshards_load() -> None:
    import os

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tfshards.prep.building.build  # noqa: F401 -- before a kill is timed
    from tfshards import loader  # noqa: F401 -- before a kill is timed


def _tfshards_convert(source: Path, out: Path) -> None:
    from tfshards import prep

    prep.build(prep.ImageFolder(source), out, shards=SHARDS)


def _tfshards_read(out: Path) -> Iterable[tuple[str, bytes]]:
    from tfshards import loader

    for keys, images in loader.load(out, batch_size=100, select=("key", "image"), remainder="keep"):
        yield from ((key.decode(), image) for key, image in zip(keys.numpy(), images.numpy(), strict=True))


# TFDS: download_and_prepare of a custom builder, https://www.tensorflow.org/datasets/add_dataset.


def _tfds_load() -> None:
    import os

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow  # noqa: F401 -- before a kill is timed
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()


def _tfds_builder(out: Path, source: Path | None = None):
    import tensorflow_datasets as tfds

    class Folder(tfds.core.GeneratorBasedBuilder):
        """A folder of class folders."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"key": tfds.features.Text(), "image": tfds.features.Image(encoding_format="png")}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for key in inputs(source):
                yield key, {"key": key, "image": str(source / key)}

    return Folder(data_dir=out)


def _tfds_convert(source: Path, out: Path) -> None:
    import tensorflow_datasets as tfds

    config = tfds.download.DownloadConfig(num_shards=SHARDS, try_download_gcs=False)
    _tfds_builder(out, source).download_and_prepare(download_config=config)


def _tfds_read(out: Path) -> Iterable[tuple[str, bytes]]:
    import tensorflow_datasets as tfds

    decoders = {"image": tfds.decode.SkipDecoding()}
    for example in tfds.as_numpy(_tfds_builder(out).as_dataset(split="train", decoders=decoders)):
        yield example["key"].decode(), bytes(example["image"])


# litData: optimize() with use_checkpoint, its option for interrupted jobs.


def _litdata_load() -> None:
    import litdata  # noqa: F401 -- before a kill is timed


@dataclass(frozen=True)
class _Example:
    source: Path

    def __call__(self, key: str) -> dict:
        return {"key": key, "image": (self.source / key).read_bytes()}


def _litdata_convert(source: Path, out: Path) -> None:
    import litdata

    keys = inputs(source)
    litdata.optimize(
        _Example(source),
        keys,
        output_dir=str(out),
        chunk_size=len(keys) // SHARDS,
        num_workers=2,
        use_checkpoint=True,
        verbose=False,
        start_method="fork",
    )


def _litdata_read(out: Path) -> Iterable[tuple[str, bytes]]:
    import litdata

    for example in litdata.StreamingDataset(str(out)):
        yield example["key"], bytes(example["image"])


# MDS: MDSWriter in a loop, https://docs.mosaicml.com/projects/streaming.


def _mds_load() -> None:
    import streaming  # noqa: F401 -- before a kill is timed


def _mds_convert(source: Path, out: Path) -> None:
    import streaming

    columns = {"key": "str", "image": "bytes"}
    keys = inputs(source)
    limit = sum((source / key).stat().st_size for key in keys) // SHARDS
    with streaming.MDSWriter(out=str(out), columns=columns, size_limit=limit) as writer:
        for key in keys:
            writer.write({"key": key, "image": (source / key).read_bytes()})


def _mds_read(out: Path) -> Iterable[tuple[str, bytes]]:
    import streaming
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    dataset = streaming.StreamingDataset(local=str(out), shuffle=False, batch_size=1)
    for example in (dataset[number] for number in range(dataset.num_samples)):
        yield example["key"], example["image"]


# ArrayRecord: one writer for each file, as Grain's tutorials write them; there is no file about the dataset.


def _array_record_load() -> None:
    import array_record.python.array_record_module  # noqa: F401 -- before a kill is timed
    import grain  # noqa: F401 -- before a kill is timed


def _array_record_convert(source: Path, out: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    out.mkdir(exist_ok=True)
    keys = inputs(source)
    for number in range(SHARDS):
        writer = ArrayRecordWriter(str(out / f"{number}.array_record"), "group_size:1")
        for key in keys[number::SHARDS]:
            writer.write(key.encode() + b"\0" + (source / key).read_bytes())
        writer.close()


def _array_record_read(out: Path) -> Iterable[tuple[str, bytes]]:
    import grain

    paths = [str(path) for path in sorted(out.glob("*.array_record"))]
    source = grain.sources.ArrayRecordDataSource(paths)
    for number in range(len(source)):
        key, _, image = source[number].partition(b"\0")
        yield key.decode(), image


WRITERS = {
    "tfshards": Writer(_tfshards_load, _tfshards_convert, _tfshards_read),
    "tfds": Writer(_tfds_load, _tfds_convert, _tfds_read),
    "litdata": Writer(_litdata_load, _litdata_convert, _litdata_read),
    "mds": Writer(_mds_load, _mds_convert, _mds_read),
    "array_record": Writer(_array_record_load, _array_record_convert, _array_record_read),
}
