"""The verb ``merge``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from tfshards.prep.cli.derived import add_derived_shards, run_derived
from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.schemas import InputError, OptionsError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="folders of two or more datasets, or SPLIT=FOLDER with --as-splits",
    )
    parser.add_argument(
        "--as-splits",
        action="store_true",
        help="make each dataset one split: --as-splits train=FOLDER test=FOLDER; the key of each example "
        "becomes SPLIT/KEY",
    )
    add_dataset(parser, "folder of the new dataset; its last part is the default name")
    add_derived_shards(parser)
    parser.epilog = (
        "By default the shards of all datasets are linked or copied unchanged. With --shards, --shard-size, "
        "--balance or --compression the examples are mixed and written to new shards, and with --as-splits "
        "written to new shards."
    )


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.derivation.merge import merge

    if args.as_splits:
        return run_derived(merge, _by_split(args.sources), args)
    for source in args.sources:
        _, equals, folder = source.partition("=")
        if equals and not os.path.exists(source) and os.path.isdir(folder):
            raise InputError("as-splits-missing", source=source, folder=folder)
    return run_derived(merge, args.sources, args)


def _by_split(sources: Sequence[str]) -> dict[str, str]:
    """Return the folder of each split in arguments such as ``train=data/a``."""
    folders: dict[str, str] = {}
    for source in sources:
        split, equals, folder = source.partition("=")
        if not equals or not folder or split in folders:
            raise OptionsError("as-splits-form", source=source)
        folders[split] = folder
    return folders


MERGE = Verb(
    "merge",
    "combine several datasets into one, split by split",
    _add_arguments,
    _run,
    is_resumable=True,
    takes_jobs=True,
)
