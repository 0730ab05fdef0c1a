"""Flags from the options that dataclasses declare, the arguments that verbs share, and their values."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tfshards.prep.cli.verb import add_dataset
from tfshards.prep.option import Option, Record, help_of, options_of
from tfshards.prep.planning.options import Options, ShardCounts
from tfshards.prep.sources.base import Source
from tfshards.prep.sources.classes import class_names_of, read_class_names
from tfshards.prep.sources.kinds import Kind
from tfshards.schemas import OptionsError


def add_options(
    parser: argparse._ActionsContainer,
    record: type[Record],
    *,
    helps: Mapping[str, str] | None = None,
    without: Collection[str] = (),
) -> None:
    """Add a flag for each option of a dataclass."""
    for name, declared in options_of(record).items():
        if name in without:
            continue
        text = (helps or {}).get(name) or help_of(record, name)
        # argparse fills in what follows a percent sign
        text = text.replace("%", "%%")
        parser.add_argument(
            f"--{declared.flag or name.replace('_', '-')}",
            dest=name,
            help=text,
            **_details(record, name, declared),
        )


def _details(record: type[Record], name: str, declared: Option) -> dict[str, Any]:
    if getattr(record, name, None) is False:
        return {"action": "store_true"}
    details: dict[str, Any] = {"metavar": declared.metavar}
    if declared.choices and declared.metavar is None:
        details["choices"] = [str(choice) for choice in declared.choices]
    if declared.parse is int:
        details["type"] = int
    if declared.is_repeatable:
        details["action"] = "append"
    return details


def values_of(args: argparse.Namespace, record: type[Record]) -> dict[str, Any]:
    """Return the options that the command line gives, by the names of their fields."""
    given = {name: getattr(args, name, None) for name in options_of(record)}
    return {
        name: value if isinstance(value, (bool, int)) else options_of(record)[name].value_of(value)
        for name, value in given.items()
        if value is not None and value is not False
    }


def add_build_arguments(parser: argparse.ArgumentParser, kind: Kind) -> None:
    """Add the arguments of a build from a kind of source."""
    parser.add_argument(
        "source", nargs="+" if kind.takes_several else None, metavar="SOURCE", help=kind.source_help
    )
    of_source = parser.add_argument_group(f"options of {kind.name}")
    for record in kind.records:
        add_options(of_source, record)
    add_dataset(parser, "folder of the dataset; its last part is the default name of the dataset")
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
    parser.add_argument("--seed", type=int, default=0, help="random seed for splits and order (default: 0)")
    add_shards(parser, "as many as --shard-size gives")
    add_options(
        parser,
        Options,
        helps={"group_by": kind.group_help},
        without=() if kind.can_reject else ("max_rejected",),
    )


def source_of(args: argparse.Namespace) -> Source:
    """Return the source that the arguments describe."""
    kind: Kind = args.kind
    return kind.make(args.source, _class_names(args), *(values_of(args, record) for record in kind.records))


def settings_of(args: argparse.Namespace) -> tuple[ShardCounts, Options]:
    """Return the requested numbers of shards, and the other options."""
    return shard_counts_of(args.shards), Options(**values_of(args, Options))


def _class_names(args: argparse.Namespace) -> tuple[str, ...] | None:
    if args.class_names is not None:
        return read_class_names(args.class_names)
    return None if args.class_names_from is None else class_names_of(args.class_names_from)


def add_shards(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option ``--shards``."""
    parser.add_argument(
        "--shards",
        action="append",
        default=[],
        metavar="[SPLIT=]N",
        help=f"number of shards of every split, or of one split; repeatable (default: {default})",
    )


def shard_counts_of(texts: Sequence[str]) -> ShardCounts:
    """Return the numbers of shards in texts such as ``64``, for every split, and ``val=8``, for one."""
    default: list[int] = []
    by_split: dict[str, int] = {}
    for text in texts:
        split, equals, number = text.rpartition("=")
        is_repeated = split in by_split if equals else bool(default)
        if not number.isdecimal() or (equals and not split):
            raise OptionsError("shards-form", text=text)
        if is_repeated:
            of = f"of split {split!r}" if equals else "of every split"
            raise OptionsError("shards-repeated", text=text, of=of)
        if equals:
            by_split[split] = int(number)
        else:
            default.append(int(number))
    return ShardCounts(default[0] if default else None, by_split)
