"""The verbs ``remove``, ``relabel`` and ``append``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.arguments import add_shards, shard_counts_of
from tfshards.prep.cli.verb import Result, Verb, add_dataset, add_max_rejected
from tfshards.prep.planning.options import DEFAULT_SHARD_SIZE
from tfshards.schemas.errors import size


def _add_new_classes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--new-classes",
        action="store_true",
        help="add classes that the dataset does not have to the end of its class names",
    )


def _add_append_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "source",
        nargs="+",
        metavar="SOURCE",
        help="inputs of the dataset with additions, or only new inputs: a folder of images, array arguments, "
        "or a table and, if its images are in another folder, that folder",
    )
    add_dataset(parser)
    add_shards(parser, f"one per {size(DEFAULT_SHARD_SIZE)} of new inputs")
    add_max_rejected(parser, "new inputs")
    add("--follow-links", action="store_true", help="follow links out of the folder of images")
    _add_new_classes(parser)


def _run_append(args: argparse.Namespace) -> Result:
    from tfshards.prep.deriving.append import append

    manifest = append(
        args.source,
        args.dataset,
        shards=shard_counts_of(args.shards),
        max_rejected=args.max_rejected,
        follow_links=args.follow_links,
        new_classes=args.new_classes,
        engine=args.engine,
        beam_args=args.beam_args,
    )
    return Result.of_manifest(manifest)


APPEND = Verb(
    "append",
    "add new examples to a dataset in new shards, with the options of its build",
    _add_append_arguments,
    _run_append,
    takes_beam_args=True,
    is_resumable=True,
)


def _add_remove_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument(
        "--keys",
        required=True,
        metavar="FILE",
        help="file with a key per line, such as tfshards audit --keys writes; a line that starts with a "
        "quotation mark is a JSON string",
    )
    parser.epilog = (
        "The old files stay until the next build, so that training can finish; tfshards prune removes them, "
        "and with them the last byte of the removed examples."
    )


def _run_remove(args: argparse.Namespace) -> Result:
    from tfshards.prep.deriving.remove import remove

    return Result.of_manifest(remove(args.dataset, args.keys, engine=args.engine, beam_args=args.beam_args))


REMOVE = Verb(
    "remove",
    "remove examples from a dataset, and keep append from taking them again",
    _add_remove_arguments,
    _run_remove,
    takes_beam_args=True,
    is_resumable=True,
)


def _add_relabel_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument(
        "--labels",
        required=True,
        metavar="FILE",
        help="CSV, TSV, JSON Lines or Parquet file with the columns key and label, which is the name of a "
        "class, or its number if the classes have no names",
    )
    _add_new_classes(parser)


def _run_relabel(args: argparse.Namespace) -> Result:
    from tfshards.prep.deriving.relabel import relabel

    manifest = relabel(
        args.dataset,
        args.labels,
        new_classes=args.new_classes,
        engine=args.engine,
        beam_args=args.beam_args,
    )
    return Result.of_manifest(manifest)


RELABEL = Verb(
    "relabel",
    "give examples of a dataset other classes",
    _add_relabel_arguments,
    _run_relabel,
    takes_beam_args=True,
    is_resumable=True,
)
