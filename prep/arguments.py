"""What ``build`` and ``plan`` take from the command line: their arguments, and the values made of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import cast

from tfshards.prep.classes import labels_of, read_labels
from tfshards.prep.image_options import Channels, ImageOptions
from tfshards.prep.options import Options, parse_share
from tfshards.prep.sources.arrays import Arrays
from tfshards.prep.sources.image_folder import ImageFolder
from tfshards.prep.sources.listing import Source
from tfshards.prep.splits import parse_ratios
from tfshards.schemas import OptionsError
from tfshards.schemas.sizes import parse_size

KINDS = ("images", "arrays", "table")

_GROUP_HELP = {
    "images": "keep together: 'folder', or a regular expression with one (group) found in the key",
    "arrays": "keep together rows of equal value in this array",
    "table": "keep together rows of equal value in this column",
}


def add_arguments(parser: argparse.ArgumentParser, kind: str) -> None:
    """Add the arguments that building from one kind of input takes."""
    _add_source_arguments(parser, kind)
    _add_options_of_a_dataset(parser, kind)
    _add_options_of_shards(parser)


def add_append_arguments(parser: argparse.ArgumentParser, kind: str) -> None:
    """Add those that appending takes: what is the dataset's own is not among them."""
    _add_source_arguments(parser, kind)
    _add_options_of_shards(parser)
    parser.set_defaults(labels=None, labels_from=None, split=[], stratify=False, group_by=None)
    parser.set_defaults(duplicates="keep", compression="none", seed=0, name=None)


def _add_source_arguments(parser: argparse.ArgumentParser, kind: str) -> None:
    add = parser.add_argument
    if kind == "images":
        add("src", metavar="SRC", help="folder of class folders, split folders, or images")
    elif kind == "table":
        add(
            "table",
            metavar="TABLE",
            help="CSV, TSV, JSONL or Parquet file, or a folder with metadata.csv and so on",
        )
        _add_column_arguments(parser)
    else:
        add(
            "arrays",
            nargs="+",
            metavar="ARRAY",
            help="NAME=FILE.npy, FILE.npy (named by its stem), FILE.npz, or parts X-0.npy X-1.npy",
        )
        add("--list", action="append", default=[], metavar="NAME", help="store as an int64 or float list")
    add("out", metavar="OUT", help="the dataset's directory; its last part names the dataset")
    if kind != "arrays":
        _add_image_arguments(parser)


def _add_options_of_a_dataset(parser: argparse.ArgumentParser, kind: str) -> None:
    add = parser.add_argument
    labels = parser.add_mutually_exclusive_group()
    labels.add_argument("--labels", metavar="FILE", help="class names in label order, one a line; no others")
    labels.add_argument("--labels-from", metavar="DATASET", help="the classes of this dataset, and no others")
    add("--split", action="append", default=[], metavar="NAME=RATIO", help="such as train=0.9, with val=10%%")
    add("--stratify", action="store_true", help="split each class by the ratios")
    add("--group-by", metavar="WHAT", help=_GROUP_HELP[kind])
    same = (
        "examples with the same images, or without images the same values: keep (default), drop all but "
        "the first key, or fail"
    )
    add("--duplicates", default="keep", choices=["keep", "drop", "fail"], help=same)
    add("--compression", default="none", choices=["none", "gzip"], help="of the shards (none)")
    add("--seed", type=int, default=0, help="of order and splits (0)")
    add("--name", help="of the dataset")


def _add_options_of_shards(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--shards", action="append", default=[], metavar="[SPLIT=]N", help="shards of every split, or of one")
    add("--shard-size", metavar="SIZE", help="source bytes a shard instead, such as 128MiB (default)")
    add("--balance", default="count", choices=["count", "bytes"], help="what is even among shards")
    add("--json", action="store_true", help="print the result as JSON")


def source_of(options: argparse.Namespace) -> Source:
    """Return the source that the arguments name."""
    if options.kind == "arrays":
        return Arrays.open(options.arrays, lists=tuple(options.list), class_names=_class_names(options))
    if options.kind == "table":
        return _table_of(options)
    return ImageFolder(
        options.src,
        image_options_of(options),
        class_names=_class_names(options),
        follow_links=options.follow_links,
    )


def _table_of(options: argparse.Namespace) -> Source:
    # Arrow is only for those who have tables.
    from tfshards.prep.sources.table import Table
    from tfshards.prep.sources.table_roles import Columns

    columns = Columns(
        images=tuple(options.image),
        masks=tuple(options.mask),
        label=options.label,
        split=options.split_column,
        drop=tuple(options.drop),
    )
    return Table(
        options.table,
        image_options_of(options),
        columns,
        root=options.root,
        class_names=_class_names(options),
        follow_links=options.follow_links,
    )


def image_options_of(options: argparse.Namespace) -> ImageOptions:
    """Return what the arguments say of images."""
    channels = options.channels
    return ImageOptions(
        check=options.check,
        orientation=options.orientation,
        channels=cast("Channels", int(channels) if channels.isdecimal() else channels),
        alpha=options.alpha,
        animation=options.animation,
        resize=options.resize,
        format=options.format,
        jpeg_quality=options.jpeg_quality,
        max_pixels=options.max_pixels,
        max_bytes=parse_size(options.max_bytes, "--max-bytes"),
        max_frames=options.max_frames,
        max_scans=options.max_scans,
    )


def settings_of(options: argparse.Namespace) -> tuple[int | None, Options]:
    """Return the number of shards of every split, if it is given, and the other options."""
    shards, by_split = parse_shards(options.shards)
    settings = Options(
        splits=parse_ratios(options.split),
        stratify=options.stratify,
        group_by=options.group_by,
        shards_by_split=by_split,
        shard_size=parse_size(options.shard_size, "--shard-size") if options.shard_size else None,
        balance=options.balance,
        name=options.name,
        # arrays are taken whole or refused
        max_rejected=parse_share(getattr(options, "max_rejected", "1%")),
        duplicates=options.duplicates,
        compression=options.compression,
    )
    return shards, settings


def _add_column_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("columns").add_argument
    add("--root", metavar="DIR", help="folder to which paths of images are relative (the table's)")
    images = "further column of paths of images, beside file_name and NAME_file_name"
    add("--image", action="append", default=[], metavar="COLUMN", help=images)
    add(
        "--mask",
        action="append",
        default=[],
        metavar="COLUMN",
        help="the same, of maps of classes: never mixed",
    )
    add("--label", metavar="COLUMN", help="of classes: text or integers, or lists of them (label)")
    add("--split-column", metavar="COLUMN", help="which names each row's split (split)")
    add("--drop", action="append", default=[], metavar="COLUMN", help="not stored")


def _add_image_arguments(parser: argparse.ArgumentParser) -> None:
    defaults = ImageOptions()
    add = parser.add_argument_group("what becomes of images").add_argument
    checks = "decode every image (default), look at headers, or take the bytes as they are"
    add("--check", default="decode", choices=["decode", "header", "none"], help=checks)
    turn = "turn images upright by their EXIF tag (default), or leave them"
    add("--orientation", default="apply", choices=["apply", "keep"], help=turn)
    add(
        "--channels",
        default="3",
        choices=["1", "3", "4", "keep"],
        help="grey, RGB (default), RGBA, or as it is",
    )
    alpha = "over white (default with 1 or 3 channels), forgotten, or stored (default with 4 or keep)"
    add("--alpha", choices=["white", "drop", "keep"], help=alpha)
    frames = "of files of several frames: none (default), or the first"
    add("--animation", default="reject", choices=["reject", "first"], help=frames)
    add("--resize", metavar="SIZE", help="short=256 or long=1024, which only make smaller, or HEIGHTxWIDTH")
    stored = "what is stored (default: the file's bytes where they can be kept, else PNG)"
    add("--format", default="keep", choices=["keep", "jpeg", "png", "webp"], help=stored)
    add(
        "--jpeg-quality",
        type=int,
        metavar="1-100",
        help="write as JPEG what would become PNG (95 with --format jpeg)",
    )
    for name, text in (
        ("pixels", "of an image"),
        ("frames", "of a file"),
        ("scans", "of a progressive JPEG"),
    ):
        limit = getattr(defaults, f"max_{name}")
        add(
            f"--max-{name}",
            type=int,
            default=limit,
            metavar="N",
            help=f"{name} {text}, else it is rejected ({limit:,})",
        )
    add("--max-bytes", default="1GiB", metavar="SIZE", help="of a file, else it is rejected (1GiB)")
    add("--max-rejected", default="1%", metavar="SHARE", help="of the inputs, before the build fails (1%%)")
    add("--follow-links", action="store_true", help="also links out of SRC, and links to folders")


def _class_names(options: argparse.Namespace) -> tuple[str, ...] | None:
    if options.labels is not None:
        return read_labels(options.labels)
    return None if options.labels_from is None else labels_of(options.labels_from)


def parse_shards(texts: Sequence[str]) -> tuple[int | None, dict[str, int]]:
    """Return the number in ``64``, and those in ``val=8`` by split."""
    every: list[int] = []
    by_split: dict[str, int] = {}
    for text in texts:
        split, equals, number = text.rpartition("=")
        if not number.isdecimal() or (equals and (not split or split in by_split)) or (every and not equals):
            raise OptionsError(f"--shards {text}: must be a number, or SPLIT=NUMBER, each once")
        if equals:
            by_split[split] = int(number)
        else:
            every.append(int(number))
    return (every[0] if every else None), by_split
