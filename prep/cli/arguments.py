"""The arguments that ``build`` and ``plan`` share, and their conversion to options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import get_args

from tfshards.prep.cli.config_file import add_config
from tfshards.prep.cli.expand import add_from
from tfshards.prep.cli.shard_arguments import add_shards, shard_counts_of, shard_size_of
from tfshards.prep.cli.verb import add_dataset, add_max_rejected
from tfshards.prep.planning.options import DEFAULT_MAX_REJECTED, Balance, Duplicates, Options
from tfshards.prep.planning.shard_counts import ShardCounts
from tfshards.prep.planning.splits import parse_ratios
from tfshards.prep.sources.base import Source
from tfshards.prep.sources.classes import class_names_of, read_class_names
from tfshards.prep.sources.kind import SourceKind
from tfshards.prep.sources.registry import KINDS
from tfshards.schemas.manifest import Compression


def add_kinds(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Add to a verb's parser one for each kind of source, with the arguments of a build, and yield it."""
    add_from(parser)
    kinds = parser.add_subparsers(required=True, metavar="KIND")
    for imported in KINDS.values():
        kind = imported()
        own = kinds.add_parser(
            kind.name, help=kind.help, description=f"Source: {kind.help}.", allow_abbrev=False
        )
        own.set_defaults(kind=kind, parser=own)
        add_config(own)
        _add_arguments(own, kind)
        yield own


def _add_arguments(parser: argparse.ArgumentParser, kind: SourceKind) -> None:
    kind.add_arguments(parser)
    add_dataset(parser, "folder of the dataset; its last part is the default name of the dataset")
    if kind.can_reject:
        add_max_rejected(parser, "inputs")
    _add_options_of_a_dataset(parser, kind)
    _add_options_of_shards(parser)


def _add_options_of_a_dataset(parser: argparse.ArgumentParser, kind: SourceKind) -> None:
    add = parser.add_argument
    names = parser.add_mutually_exclusive_group()
    names.add_argument(
        "--class-names",
        metavar="FILE",
        help="file with the class names in label order, one per line; other classes are refused",
    )
    names.add_argument(
        "--class-names-from",
        metavar="DATASET",
        help="dataset whose class names to use; other classes are refused",
    )
    add(
        "--split",
        dest="splits",
        action="append",
        default=[],
        metavar="NAME=RATIO",
        help="split at random by ratio, such as --split train=0.9 --split val=0.1; repeatable",
    )
    add("--stratify", action="store_true", help="apply the ratios to each class separately")
    add("--group-by", metavar="WHAT", help=kind.group_help)
    add(
        "--duplicates",
        default="keep",
        choices=get_args(Duplicates),
        help="keep examples with the same content (default), drop all but the one with the smallest key, or "
        "fail; content is the images, or the values of examples without images",
    )
    add(
        "--compression",
        default="none",
        choices=get_args(Compression),
        help="compression of the shards (default: none)",
    )
    add("--seed", type=int, default=0, help="random seed for splits and order (default: 0)")
    add("--name", help="name of the dataset (default: the last part of DATASET)")


def _add_options_of_shards(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_shards(parser, "as many as --shard-size gives")
    add(
        "--shard-size",
        metavar="SIZE",
        help="choose the number of shards by source bytes per shard (default: 128MiB)",
    )
    add(
        "--balance",
        default="count",
        choices=get_args(Balance),
        help="balance shards by number of examples (default) or by source bytes",
    )


def source_of(args: argparse.Namespace) -> Source:
    """Return the source that the arguments describe."""
    kind: SourceKind = args.kind
    return kind.from_arguments(args, _class_names(args))


def settings_of(args: argparse.Namespace) -> tuple[ShardCounts, Options]:
    """Return the requested numbers of shards, and the other options."""
    options = Options(
        splits=parse_ratios(args.splits),
        stratify=args.stratify,
        group_by=args.group_by,
        shard_size=shard_size_of(args.shard_size),
        balance=args.balance,
        name=args.name,
        # absent where no single input can be rejected
        max_rejected=getattr(args, "max_rejected", DEFAULT_MAX_REJECTED),
        duplicates=args.duplicates,
        compression=args.compression,
    )
    return shard_counts_of(args.shards), options


def _class_names(args: argparse.Namespace) -> tuple[str, ...] | None:
    if args.class_names is not None:
        return read_class_names(args.class_names)
    return None if args.class_names_from is None else class_names_of(args.class_names_from)
