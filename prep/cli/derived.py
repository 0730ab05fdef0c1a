"""The verbs ``reshard`` and ``merge``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from tfshards.prep.cli.arguments import add_options, add_shards, shard_counts_of, values_of
from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.schemas import Manifest, OptionsError


def _add_shards(parser: argparse.ArgumentParser) -> None:
    # imported late, because most commands do not need it
    from tfshards.prep.deriving.options import ShardOptions

    add_shards(parser, "as many as before")
    add_options(parser, ShardOptions)
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace an existing derived dataset that differs or is damaged",
    )


def _run(
    derive: Callable[..., Manifest],
    origins: str | Sequence[str] | Mapping[str, str],
    args: argparse.Namespace,
) -> Result:
    # imported late, because it is not needed to print help
    from tfshards.prep.deriving.options import ShardOptions

    made = derive(
        origins,
        args.dataset,
        shards=shard_counts_of(args.shards),
        overwrite=args.overwrite,
        options=ShardOptions(**values_of(args, ShardOptions)),
        engine=args.engine,
        beam_args=args.beam_args,
    )
    return Result.of_manifest(made)


def _add_reshard_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="folder of the dataset whose records are copied")
    add_dataset(
        parser, "folder of the new dataset, whose last part is the default name; or SOURCE, with --overwrite"
    )
    _add_shards(parser)


def _run_reshard(args: argparse.Namespace) -> Result:
    from tfshards.prep.deriving.reshard import reshard

    return _run(reshard, args.source, args)


RESHARD = Verb(
    "reshard",
    "write the examples of a dataset to other shards, in a new folder or in place",
    _add_reshard_arguments,
    _run_reshard,
    takes_beam_args=True,
    is_resumable=True,
)


def _add_merge_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="folders of two or more datasets, or SPLIT=FOLDER with --as-splits",
    )
    parser.add_argument(
        "--as-splits",
        action="store_true",
        help="make each dataset one split: --as-splits train=FOLDER test=FOLDER",
    )
    add_dataset(parser, "folder of the new dataset; its last part is the default name")
    _add_shards(parser)
    parser.epilog = "The examples are mixed and written to new shards."


def _run_merge(args: argparse.Namespace) -> Result:
    from tfshards.prep.deriving.merge import merge

    return _run(merge, _by_split(args.sources) if args.as_splits else args.sources, args)


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
    _add_merge_arguments,
    _run_merge,
    takes_beam_args=True,
    is_resumable=True,
)
