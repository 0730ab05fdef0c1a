"""The verb ``audit``."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, get_args

from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.prep.progress.lines import report_line
from tfshards.prep.records.dataset_files import check_new_file
from tfshards.prep.sources.keys import holds_written_keys, write_keys
from tfshards.schemas import OptionsError
from tfshards.schemas.errors import counted
from tfshards.schemas.storage import any_path

if TYPE_CHECKING:
    from tfshards.prep.auditing.findings import Kind

# The kinds of findings whose instances are examples.
_WITH_EXAMPLES: tuple[Kind, ...] = ("leak", "duplicate", "conflict", "size")
_DEFAULT_KINDS: tuple[Kind, ...] = ("leak", "duplicate")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    from tfshards.prep.auditing.findings import Kind

    add_dataset(parser)
    parser.add_argument(
        "--distance",
        default="32",
        metavar="N",
        help="treat images as near duplicates if at most N of the 256 bits of their hashes differ; "
        "with none, find only identical bytes (default: 32)",
    )
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        choices=get_args(Kind),
        help="exit with status 1 if there is a finding of this kind; repeatable",
    )
    parser.add_argument(
        "--keys",
        metavar="FILE",
        help="write the keys of the examples that were found to this file, for tfshards remove; of equal "
        "or similar examples all but one, without those that have different labels",
    )
    parser.add_argument(
        "--keys-of",
        action="append",
        default=[],
        choices=_WITH_EXAMPLES,
        help="write the keys of findings of this kind; repeatable (default: leak and duplicate)",
    )


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.auditing.audit import audit, audit_json, audit_text

    if args.keys_of and not args.keys:
        raise OptionsError("keys-of-useless")
    path = any_path(args.keys) if args.keys else None
    if path is not None:
        check_new_file(path, "a list of keys", holds_written_keys)
    found = audit(args.dataset, distance=_distance(args.distance))
    if path is not None:
        keys = found.keys(args.keys_of or _DEFAULT_KINDS)
        write_keys(path, keys)
        report_line(f"wrote {counted(len(keys), 'key')} to {path}")
        if contested := len({*found.keys(["conflict"])} - {*keys}):
            report_line(
                f"left out the keys of {counted(contested, 'example')} of label conflicts, since nothing "
                "shows which label is right; keys_of=conflict lists them all: correct their labels with "
                "'tfshards relabel' or remove the wrong ones, then audit again"
            )
    failed = Counter(finding.kind for finding in found.findings if finding.kind in args.fail_on)
    if failed:
        kinds = ", ".join(f"{counted(count, 'finding')} of kind {kind!r}" for kind, count in failed.items())
        report_line(f"failed: {kinds} (fail_on=)")
    return Result(lambda: audit_text(found), lambda: audit_json(found), 1 if failed else 0)


def _distance(text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdecimal()):
        raise OptionsError("distance-form", text=text)
    return int(text)


AUDIT = Verb(
    "audit",
    "find examples in two splits, duplicates, rare classes and unusual image sizes",
    _add_arguments,
    _run,
)
