"""The verbs that make datasets of datasets: their arguments, and what they run."""

from __future__ import annotations

import argparse
from typing import TypeVar

from tfshards.prep.arguments import KINDS, add_append_arguments, parse_shards, settings_of, source_of
from tfshards.prep.copies.dealing import Dealing
from tfshards.prep.print import info_text
from tfshards.schemas import Manifest
from tfshards.schemas.sizes import parse_size

Parser = TypeVar("Parser", bound=argparse.ArgumentParser)


def add_copy_verbs(verbs: argparse._SubParsersAction[Parser], mixing: type[Parser]) -> None:
    """Add ``reshard``, ``merge`` and ``append`` to the verbs."""
    text = "deal a dataset's examples to other shards, in a new folder"
    parser = verbs.add_parser("reshard", help=text, description=text)
    parser.add_argument("root", metavar="OUT", help="the dataset's directory")
    parser.add_argument("out", metavar="NEW", help="the new one's; its last part names it")
    parser.set_defaults(run=_reshard, parser=parser)
    _add_dealing(parser)
    text = "make one dataset of several, split by split"
    parser = verbs.add_parser("merge", help=text, description=text)
    parser.add_argument("roots", nargs="+", metavar="OUT", help="a dataset's directory; two or more")
    parser.add_argument("out", metavar="NEW", help="the new one's; its last part names it")
    parser.set_defaults(run=_merge, parser=parser)
    _add_dealing(parser)
    parser.epilog = (
        "Without --shards, --shard-size, --balance or --compression the shards stay as they are, linked or "
        "copied; with one of them the examples of all are mixed and dealt to new shards."
    )
    text = "take new examples into a dataset, as further shards beside those that it has"
    kinds = verbs.add_parser("append", help=text, description=text).add_subparsers(
        required=True, metavar="INPUT", parser_class=mixing
    )
    for kind in KINDS:
        chosen = kinds.add_parser(kind, help=f"append from {kind}")
        chosen.set_defaults(run=_append, kind=kind, parser=chosen, takes_beam_args=True)
        add_append_arguments(chosen, kind)
        chosen.epilog = "Apache Beam's pipeline options follow behind a bare --, as with build."


def _add_dealing(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    shards = "shards of every split, or of one (as many as there are)"
    add("--shards", action="append", default=[], metavar="[SPLIT=]N", help=shards)
    add("--shard-size", metavar="SIZE", help="bytes of records a shard instead, such as 128MiB")
    add("--balance", choices=["count", "bytes"], help="what is even among shards (count)")
    add("--compression", choices=["none", "gzip"], help="of the new shards (as before)")
    add("--name", help="of the new dataset")
    add("--overwrite", action="store_true", help="replace another dataset in NEW")
    add("--json", action="store_true", help="print the new manifest")


def _dealing_of(options: argparse.Namespace) -> Dealing:
    shards, by_split = parse_shards(options.shards)
    return Dealing(
        shards=shards,
        shards_by_split=by_split,
        shard_size=parse_size(options.shard_size, "--shard-size") if options.shard_size else None,
        balance=options.balance or "count",
        compression=options.compression,
    )


def _reshard(options: argparse.Namespace) -> int:
    from tfshards.prep.copies.reshard import reshard

    made = reshard(
        options.root,
        options.out,
        _dealing_of(options),
        name=options.name,
        overwrite=options.overwrite,
    )
    return _print(made, options)


def _merge(options: argparse.Namespace) -> int:
    from tfshards.prep.copies.merge import merge

    is_dealt = options.shards or options.shard_size or options.balance or options.compression
    made = merge(
        options.roots,
        options.out,
        _dealing_of(options) if is_dealt else None,
        name=options.name,
        overwrite=options.overwrite,
    )
    return _print(made, options)


def _append(options: argparse.Namespace) -> int:
    source = source_of(options)
    shards, settings = settings_of(options)
    from tfshards.prep.copies.appender import append

    made = append(source, options.out, shards=shards, options=settings, beam_args=options.beam_args)
    return _print(made, options)


def _print(made: Manifest, options: argparse.Namespace) -> int:
    print(made.to_text().strip() if options.json else info_text(made))
    return 0
