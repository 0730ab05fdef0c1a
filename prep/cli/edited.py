"""The verbs ``remove``, ``relabel`` and ``append``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext

from tfshards.prep.cli.arguments import add_shards, shard_counts_of
from tfshards.prep.cli.flags import with_flags
from tfshards.prep.cli.verb import Result, Verb, add_dataset, add_max_rejected
from tfshards.prep.planning.options import DEFAULT_SHARD_SIZE
from tfshards.prep.progress.lines import lines_to, to_stderr
from tfshards.schemas import Manifest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.sizes import size


def _add_edit_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--skip-unknown", action="store_true", help="ignore keys in FILE that the dataset does not have"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print which shards would be written, and write nothing"
    )


def _add_new_classes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--new-classes",
        action="store_true",
        help="add classes that the dataset does not have to the end of its class names",
    )


def _run_edit(
    args: argparse.Namespace, edit: Callable[..., Manifest], *inputs: str, options: tuple[str, ...]
) -> Result:
    """Run an edit, and return its new manifest, or the lines of a dry run.

    The arguments have the names of the parameters of ``edit``; ``inputs`` are the positional ones.
    """
    lines: list[Json] = []

    def keep(text: str, is_warning: bool) -> None:
        text = with_flags(text, args.parser)
        if is_warning:
            to_stderr(text, is_warning)
        else:
            lines.append(text)

    given = {name: getattr(args, name) for name in (*options, "dry_run", "engine", "beam_args")}
    with lines_to(keep) if args.dry_run else nullcontext():
        made = edit(*(getattr(args, name) for name in inputs), **given)
    if args.dry_run:
        return Result(lambda: map(str, lines), lambda: {"dry_run": True, "lines": lines})
    return Result.of_manifest(made)


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
    add(
        "--checksum",
        action="store_true",
        help="compare the contents of all known inputs with their records, not only of those whose size or "
        "modification time has changed",
    )
    add("--dry-run", action="store_true", help="print what would be appended, and write nothing")


def _run_append(args: argparse.Namespace) -> Result:
    from tfshards.prep.rewriting.append import append

    args.shards = shard_counts_of(args.shards)
    options = ("shards", "max_rejected", "follow_links", "new_classes", "checksum")
    return _run_edit(args, append, "source", "dataset", options=options)


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
    _add_edit_options(parser)
    parser.epilog = (
        "The old files stay until the next build, so that training can finish; tfshards prune removes them, "
        "and with them the last byte of the removed examples."
    )


def _run_remove(args: argparse.Namespace) -> Result:
    from tfshards.prep.rewriting.remove import remove

    return _run_edit(args, remove, "dataset", "keys", options=("skip_unknown",))


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
    _add_edit_options(parser)


def _run_relabel(args: argparse.Namespace) -> Result:
    from tfshards.prep.rewriting.relabel import relabel

    return _run_edit(args, relabel, "dataset", "labels", options=("new_classes", "skip_unknown"))


RELABEL = Verb(
    "relabel",
    "give examples of a dataset other classes",
    _add_relabel_arguments,
    _run_relabel,
    takes_beam_args=True,
    is_resumable=True,
)
