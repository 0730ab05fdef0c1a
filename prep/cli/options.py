"""Flags from the options that dataclasses declare, and the values that a command line gives them."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from typing import Any

from tfshards.schemas.option import Option, Record, help_of, options_of


def add_options(
    parser: argparse._ActionsContainer,
    record: type[Record],
    *,
    helps: Mapping[str, str] | None = None,
    without: Collection[str] = (),
) -> None:
    """Add a flag for each option of a dataclass.

    Args:
        parser: the parser of a verb, or a group of its arguments.
        record: the dataclass.
        helps: help texts that replace those of the dataclass, by the name of the field.
        without: names of fields that this verb does not have.
    """
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
    """Return the options that the command line gives, by the names of their fields.

    Raises:
        OptionsError: a text is not a value of its option.
    """
    given = {name: getattr(args, name, None) for name in options_of(record)}
    return {
        name: value if isinstance(value, (bool, int)) else options_of(record)[name].value_of(value)
        for name, value in given.items()
        if value is not None and value is not False
    }
