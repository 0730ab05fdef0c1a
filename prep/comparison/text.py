"""Format the differences of two datasets as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tfshards.schemas.errors import counted
from tfshards.schemas.json_reader import Json
from tfshards.schemas.summary import escaped

if TYPE_CHECKING:
    from tfshards.prep.comparison.diff import Diff

_SHOWN = 5
# Characters of a value in a line.
_SHOWN_VALUE = 60


def diff_text(found: Diff) -> str:
    """Return each kind of difference with its number and its first examples; ``--json`` has all of them."""
    lines = [
        *_group("added", found.added),
        *_group("removed", found.removed),
        *_group("changed", found.changed),
        *_group("relabeled", [f"{key}: {before} -> {after}" for key, before, after in found.relabeled]),
        *_group("moved", [f"{key}: {before} -> {after}" for key, before, after in found.moved]),
    ]
    lines += [f"{name}: {_shown(before)} -> {_shown(after)}" for name, before, after in found.options]
    same = f"{counted(found.num_same, 'example')} {'is' if found.num_same == 1 else 'are'} the same"
    return "\n".join([*lines, same])


def _group(what: str, examples: Sequence[str]) -> Iterator[str]:
    if examples:
        yield f"{what}: {counted(len(examples), 'example')}"
        yield from (f"    {escaped(example)}" for example in examples[:_SHOWN])
        if len(examples) > _SHOWN:
            yield f"    and {len(examples) - _SHOWN:,} more"


def _shown(value: Json) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value)
    return escaped(text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…")
