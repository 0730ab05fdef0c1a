"""The command ``tfshards``: the verbs of prep and of the loader, which they import when they run.

It belongs to neither room, since neither imports the other.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tfshards.prep.cli.main import entry
from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.prep.cli.verbs import VERBS as VERBS_OF_PREP
from tfshards.schemas import InputError, OptionsError, read_manifest
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.storage.any_path import local_path
from tfshards.schemas.storage.untrusted import OPTIONS, read_whole
from tfshards.schemas.summary import escaped, table

if TYPE_CHECKING:
    from tfshards.loader import Occurrence


def _add_bench(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    add = parser.add_argument
    add("--split", metavar="NAME", help="name of the split (default: the only one)")
    add("--batch-size", type=int, default=32, metavar="N", help="examples per batch (default: 32)")
    add("--select", metavar="NAME,...", help="features to deliver (default: all)")
    add("--shuffle", type=int, metavar="SEED", help="read in a random order (default: the stored order)")
    add(
        "--size",
        metavar="HEIGHTxWIDTH",
        help="size of decoded images, or none to leave them encoded (default: 224x224, if there are images)",
    )
    add("--crop", choices=("center", "random", "shift"), help="crop images (default: resize the whole image)")
    add("--seconds", type=float, default=2.0, metavar="N", help="time to measure each stage (default: 2)")


def _run_bench(args: argparse.Namespace) -> Result:
    manifest = read_manifest(args.dataset)
    has_images = any(feature.is_encoded for feature in manifest.schema.features)
    if not has_images and args.size not in (None, "none"):
        raise OptionsError("bench-size-no-images", size=args.size, dataset=args.dataset)
    size = _size(args.size or ("224x224" if has_images else "none"))
    if size is None and args.crop:
        raise OptionsError("bench-option-no-size", given="crop", getattr=args.crop)
    # leaves out what TensorFlow logs about processors and GPUs while it is imported
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from tfshards import loader

    speeds = loader.bench(
        args.dataset,
        args.split,
        batch_size=args.batch_size,
        select=None if args.select is None else tuple(args.select.split(",")),
        shuffle=None if args.shuffle is None else loader.Shuffle(seed=args.shuffle),
        image=None if size is None else loader.Image(size=size, crop=args.crop),
        seconds=args.seconds,
    )
    return Result.of(speeds)


def _size(text: str) -> tuple[int, int] | None:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()) and text != "none":
        raise OptionsError("bench-size-form", text=text)
    return None if text == "none" else (int(height), int(width))


def _add_run(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    add = parser.add_argument
    add(
        "position",
        metavar="POSITION",
        help="JSON file of a position of the run, as Resume and Progress save it",
    )
    add("--workers", type=int, default=1, metavar="N", help="number of workers of the run (default: 1)")


def _run_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the run that a position belongs to."""
    from tfshards.loader import Position, Shuffle

    try:
        position = Position.from_json(load_json(read_whole(local_path(args.position), OPTIONS)))
        order = position.order or {}
        how, size = str(order["how"]), int(order["global_batch_size"])
        shuffle = (
            None if how == "stored" else Shuffle(int(order["seed"]), "full" if how == "full" else "runs")
        )
        for name in ("run", "lanes"):
            int(order[name])
    except OSError as error:
        raise InputError("unreadable", path=args.position, why=error.strerror) from None
    except KeyError as error:
        raise InputError("position-file", path=args.position, error=f"it has no order with {error}") from None
    except (TypeError, ValueError) as error:
        raise InputError("position-file", path=args.position, error=error) from None
    if args.workers < 1 or size % args.workers:
        raise OptionsError(f"--workers {args.workers} must divide the global batch of {size} examples")
    return {
        "path": args.dataset,
        "split": order["split"],
        "batch_size": size // args.workers,
        "remainder": order["remainder"],
        "shuffle": shuffle,
        "start": position,
        "workers": args.workers,
    }


def _span(text: str) -> int | range:
    start, colon, stop = text.partition(":")
    if not start.isdecimal() or not (stop.isdecimal() if colon else True):
        raise OptionsError("span-form", text=text)
    return range(int(start), int(stop)) if colon else int(start)


def _add_which(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument(
        "--step", required=True, metavar="N", help="step of --epoch, or of the whole run, or steps, as 10:20"
    )
    parser.add_argument("--epoch", type=int, metavar="N", help="epoch from 0")


def _run_which(args: argparse.Namespace) -> Result:
    from tfshards import loader

    return _result(loader.which(**_run_of(args), step=_span(args.step), epoch=args.epoch))


def _add_when(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    add = parser.add_argument
    add("examples", nargs="+", metavar="KEY", help="keys; numbers in stored order, if examples have no keys")
    add("--epochs", default="1", metavar="N", help="number of epochs, or epochs, such as 10:20 (default: 1)")


def _run_when(args: argparse.Namespace) -> Result:
    from tfshards import loader

    examples: list[str | int] = list(args.examples)
    if read_manifest(args.dataset).schema.key is None:
        examples = [int(text) if text.isdecimal() else text for text in args.examples]
    return _result(loader.when(**_run_of(args), examples=examples, epochs=_span(args.epochs)))


def _result(found: Sequence[Occurrence]) -> Result:
    """Return occurrences as a table, or as JSON."""
    names = ("epoch", "step", "worker", "row", "number")
    keys = [None if each.key is None else os.fsdecode(each.key) for each in found]

    def text() -> str:
        lines = table([names, *(tuple(map(str, each[:-1])) for each in found)])
        shown = ["key" if any(keys) else "", *("" if key is None else escaped(key) for key in keys)]
        return "\n".join(f"{line}  {key}".rstrip() for line, key in zip(lines, shown, strict=True))

    def to_json() -> dict[str, Json]:
        rows = [{**each._asdict(), "key": key} for each, key in zip(found, keys, strict=True)]
        return {"occurrences": [*rows]}

    return Result(text, to_json)


_VERBS = (
    Verb(
        "bench", "measure how fast this machine reads a dataset, and what limits it", _add_bench, _run_bench
    ),
    Verb("which", "print which examples a step of a run held", _add_which, _run_which, takes_jobs=False),
    Verb("when", "print when examples come in a run, or came", _add_when, _run_when, takes_jobs=False),
)
VERBS = VERBS_OF_PREP | {verb.name: verb for verb in _VERBS}


def run() -> NoReturn:
    """Run the command and end the process."""
    entry(VERBS)
