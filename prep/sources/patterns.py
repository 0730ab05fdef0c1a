"""Patterns of keys, which choose some of the files in a folder."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tfshards.prep.sources.keys import to_text
from tfshards.schemas import OptionsError
from tfshards.schemas.index import IntArray


def check_patterns(name: str, patterns: Sequence[str]) -> None:
    """Raise OptionsError unless the option ``name`` is a sequence of patterns."""
    if isinstance(patterns, (str, bytes)) or not all(each and isinstance(each, str) for each in patterns):
        raise OptionsError(f"{name}={patterns!r} must be a list of patterns, such as ['**/*.png']")


def choose_keys(
    keys: Sequence[bytes], include: Sequence[str], exclude: Sequence[str]
) -> tuple[IntArray, list[str]]:
    """Return the numbers of the keys that ``include`` matches, if it has patterns, but ``exclude`` does not.

    Also return a warning for each pattern that matches no key.
    """
    texts = [to_text(key) for key in keys] if include or exclude else []
    warnings: list[str] = []
    chosen = np.full(len(keys), not include)
    for name, patterns in (("include", include), ("exclude", exclude)):
        for pattern in dict.fromkeys(patterns):
            matches = key_pattern(pattern).fullmatch
            found = np.flatnonzero([bool(matches(text)) for text in texts])
            chosen[found] = name == "include"
            if not len(found):
                warnings.append(
                    f"{name}={pattern!r} matches no image; it is compared with whole paths relative to the "
                    "source: '*' matches within a folder, and 'FOLDER/' everything in a folder"
                )
    return np.flatnonzero(chosen), warnings


def key_pattern(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that matches the whole keys that a pattern matches.

    ``*`` and ``?`` match within a folder, ``**`` across folders, and ``[...]`` one of some characters. A
    pattern that ends with ``/`` matches every file in that folder.
    """
    if pattern.endswith("/"):
        pattern += "**"
    parts, at = [], 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        token = found[0] if found else pattern[at]
        if token == "**/" and (at == 0 or pattern[at - 1] == "/"):
            parts.append("(?:.*/)?")
        elif token.startswith("**"):
            parts.append(".*" + token[2:])
        elif token.startswith("[") and len(token) > 1:
            inside = re.sub(r"([\\\[&~|^])", r"\\\1", token[1:-1].removeprefix("!"))
            parts.append(f"(?!/)[{'^' if token[1] == '!' else ''}{inside}]")
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(token) or re.escape(token))
        at += len(token)
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise OptionsError(f"the pattern {pattern!r} is not valid: {error}; correct it") from None


_TOKEN = re.compile(r"\*\*/?|\*|\?|\[!?\]?[^\]]*\]")
