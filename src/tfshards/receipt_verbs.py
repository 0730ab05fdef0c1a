"""The verbs ``which`` and ``when``, which print receipts; the loader is imported when they run."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tfshards.prep.cli.arguments import add_options, values_of
from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.prep.option import option
from tfshards.schemas import InputError, OptionsError, read_manifest
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.storage.any_path import local_path
from tfshards.schemas.storage.untrusted import OPTIONS, read_whole
from tfshards.schemas.summary import escaped, table

if TYPE_CHECKING:
    from tfshards.loader import Occurrence, Part, Position


def _take(text: str) -> int | Part:
    from tfshards.loader import Part

    found = re.fullmatch(r"(\d+)(?:/(\d+)(/rest)?)?", text)
    if found is None:
        raise OptionsError("take-form", text=text)
    number, count, rest = found.groups()
    return int(number) if count is None else Part(int(number), int(count), rest is not None)


def _span(text: str) -> int | range:
    start, colon, stop = text.partition(":")
    if not start.isdecimal() or not (stop.isdecimal() if colon else True):
        raise OptionsError("span-form", text=text)
    return range(int(start), int(stop)) if colon else int(start)


def _position(path: str) -> Position:
    from tfshards.loader import Position

    try:
        position = Position.from_json(load_json(read_whole(local_path(path), OPTIONS)))
        order = position.order or {}
        for name in ("global_batch_size", "seed", "run", "lanes"):
            if type(order.get(name, 0)) is not int:
                raise ValueError(f"{name!r} is not an integer")
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror) from None
    except ValueError as error:
        raise InputError("position-file", path=path, error=error) from None
    return position


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """The options of a run that its order depends on."""

    split: str | None = option(None, "name of the split", metavar="NAME", default_text="the only one")
    batch_size: int | None = option(None, "examples per batch of each worker", metavar="N", parse=int)
    workers: int = option(1, "number of workers", metavar="N", parse=int)
    seed: int | None = option(
        None, "seed of the shuffle", metavar="N", parse=int, default_text="the stored order"
    )
    how: str | None = option(None, "kind of the shuffle", choices=("runs", "full"), default_text="runs")
    run: int | None = option(None, "neighbors that the shuffle keeps together", metavar="N", parse=int)
    lanes: int | None = option(None, "parts from which a batch is drawn", metavar="N", parse=int)
    remainder: str | None = option(
        None, "what happens to the last examples", choices=("drop", "pad", "keep"), default_text="drop"
    )
    take: str | None = option(
        None,
        "the first N examples, or a part, such as 1/5, or all others, 1/5/rest",
        metavar="N",
        parse=_take,
    )
    classes: Sequence[str] = option(
        (),
        "class to read, by name or number, perhaps with a ratio",
        metavar="CLASS[=RATIO]",
        is_repeatable=True,
    )
    start: str | None = option(
        None,
        "JSON file of a position, as Position.to_json() returns it, whose order gives all options above "
        "except workers, take and classes",
        flag="from",
        metavar="FILE",
        parse=_position,
    )


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that flags give or, without them, the order of a position."""
    from tfshards.loader import Shuffle
    from tfshards.loader.receipts import options_of_run

    given = values_of(args, RunFlags)
    order = given["start"].order if "start" in given else None
    found = {} if order is None else options_of_run(order, max(1, given.get("workers", 1)))
    shuffle = {name: given.pop(name) for name in ("seed", "how", "run", "lanes") if name in given}
    if shuffle:
        given["shuffle"] = replace(found.get("shuffle") or Shuffle(), **shuffle)
    if "classes" in given:
        given["classes"] = _classes(given["classes"], read_manifest(args.dataset).schema.class_names)
    found |= given
    if "batch_size" not in found:
        args.parser.error("--batch-size, or the order of a position, is required")
    return {"path": args.dataset, **found}


def _classes(texts: Sequence[str], names: Sequence[str]) -> list[str | int] | dict[str | int, float]:
    """Return the classes in texts such as ``cat``, ``3`` and, with ratios, ``cat=0.5``."""
    found: dict[str | int, float] = {}
    for text in texts:
        name, equals, ratio = text.rpartition("=") if "=" in text and text not in names else (text, "", "0")
        try:
            found[int(name) if name.isdecimal() and name not in names else name] = float(ratio)
        except ValueError:
            raise OptionsError("classes-form", text=text) from None
        if bool(equals) != ("=" in texts[0] and texts[0] not in names):
            raise OptionsError("classes-form", text=text)
    return found if equals else [*found]


def _result(found: Sequence[Occurrence]) -> Result:
    """Return occurrences as a table, or as JSON."""
    names = ("epoch", "step", "worker", "row", "number")
    keys = [_text(each.key) for each in found]

    def text() -> str:
        lines = table([names, *(tuple(map(str, each[:-1])) for each in found)])
        shown = ["key" if any(keys) else "", *("" if key is None else escaped(key) for key in keys)]
        return "\n".join(f"{line}  {key}".rstrip() for line, key in zip(lines, shown, strict=True))

    def to_json() -> dict[str, Json]:
        rows = [{**each._asdict(), "key": key} for each, key in zip(found, keys, strict=True)]
        return {"occurrences": [*rows]}

    return Result(text, to_json)


def _text(key: bytes | None) -> str | None:
    return None if key is None else os.fsdecode(key)


def _add_which(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    add = parser.add_argument
    add(
        "--step",
        required=True,
        metavar="N",
        help="step from 0, or steps, such as 10:20: of --epoch, or of the whole run, all epochs together",
    )
    add("--epoch", type=int, metavar="N", help="epoch from 0")
    add("--worker", type=int, metavar="N", help="index of the only worker to print (default: all)")
    add("--numbers", action="store_true", help="print no keys, which are read from files of keys")
    add_options(parser, RunFlags)


def _run_which(args: argparse.Namespace) -> Result:
    from tfshards import loader

    given = {"step": _span(args.step), "epoch": args.epoch, "worker": args.worker, "keys": not args.numbers}
    return _result(loader.which(**_options(args), **given))


WHICH = Verb(
    "which", "print which examples a step of a training run held", _add_which, _run_which, takes_jobs=False
)


def _examples(args: argparse.Namespace) -> list[str | int]:
    if not args.numbers:
        return list(args.examples)
    wrong = [text for text in args.examples if not text.isdecimal()]
    if wrong:
        raise OptionsError("number-form", text=wrong[0])
    return [int(text) for text in args.examples]


def _add_when(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    add = parser.add_argument
    add(
        "examples",
        nargs="+",
        metavar="KEY",
        help="keys, which are looked up in the files of keys of the split",
    )
    add("--numbers", action="store_true", help="KEY is a number in stored order, for which nothing is read")
    add("--epochs", default="1", metavar="N", help="number of epochs, or epochs, such as 10:20 (default: 1)")
    add_options(parser, RunFlags)


def _run_when(args: argparse.Namespace) -> Result:
    from tfshards import loader

    epochs = _span(args.epochs)
    return _result(loader.when(**_options(args), examples=_examples(args), epochs=epochs))


WHEN = Verb(
    "when", "print when examples come in a training run, or came", _add_when, _run_when, takes_jobs=False
)
