"""Options that give each column a value: a role, or the format of boxes and keypoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tfshards.schemas import OptionsError


def parse_pairs(code: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the value of each column in texts such as ``objects/bbox=xywh``; ``code`` names the error."""
    formats: dict[str, str] = {}
    for text in texts:
        name, _, found = text.rpartition("=")
        if not name or name in formats:
            raise OptionsError(code, text=text)
        formats[name] = found
    return formats


parse_formats: Callable[[Sequence[str]], dict[str, str]] = partial(parse_pairs, "coordinates-form")


def check_formats(name: str, formats: object, allowed: Sequence[str]) -> None:
    """Raise OptionsError unless the argument ``name`` maps columns to some of the allowed formats."""
    pairs = formats.items() if isinstance(formats, Mapping) else [("", formats)]
    for column, found in pairs:
        if not isinstance(column, str) or not column or found not in allowed:
            raise OptionsError("coordinates-format", name=name, column=column, found=found, allowed=allowed)
