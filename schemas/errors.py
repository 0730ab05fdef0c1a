"""The errors that tfshards raises on purpose, and the problems that validators collect.

The text of an error stands where it is raised, as an f-string: what is wrong, where, what was found, what is
allowed, and what to do. Any other exception raised by tfshards is a bug.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

# Maximum number of problems in the text of a FormatError; a damaged list of shards may have thousands.
MAX_LISTED = 20


class TfshardsError(Exception):
    """Base class of all errors that tfshards raises on purpose.

    Characters that are not printable, as file names may contain, are escaped when the message is printed.

    Attributes:
        text: the first line of the message.
        lines: further lines.
        code: stable name of the fault, such as ``disk-full``, where a program can act on it; or empty.
    """

    def __init__(self, text: str, /, *lines: object, code: str = "") -> None:
        # Beam makes another error of this class from the first argument and the name of a step
        super().__init__(text)
        self.text: str = text
        self.lines: tuple[object, ...] = lines
        self.code: str = code

    def __str__(self) -> str:
        return "\n".join(one_line(str(line)) for line in (self.text, *self.lines))

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), self.text, *self.lines, code=self.code), ()


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 shard`` or ``1,000 shards``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(num_bytes: float) -> str:
    """Return a number of bytes as text with a unit, such as ``1.4 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(num_bytes) < 1024:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} TiB"


class OptionsError(TfshardsError, ValueError):
    """An option is invalid, whatever the input is (exit status 2)."""


class InputError(TfshardsError):
    """The input is not suitable, such as a folder without images or arrays of different lengths."""


class BuildError(TfshardsError):
    """A build ended before its commit; the output folder holds no new dataset."""


@dataclass(frozen=True)
class Problem:
    """One fault that a validator found.

    Attributes:
        place: location of the fault, such as ``splits.train.shards[3].num_bytes`` or the path of a shard.
        message: what was found, and what is allowed.
    """

    place: str
    message: str

    def __str__(self) -> str:
        return one_line(f"{self.place}: {self.message}")


class FormatError(TfshardsError, ValueError):
    """A file of a dataset violates the format; ``problems`` holds every fault found, not only the first."""

    def __init__(self, subject: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"{subject}: {counted(len(problems), 'problem')}", code="format")
        self.subject = subject
        self.problems: tuple[Problem, ...] = tuple(problems)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.subject, self.problems)

    def __str__(self) -> str:
        lines = [one_line(f"{self.subject}: {counted(len(self.problems), 'problem')}")]
        lines += [f"  {problem}" for problem in self.problems[:MAX_LISTED]]
        left = len(self.problems) - MAX_LISTED
        return "\n".join([*lines, *([f"  and {left} more"] if left > 0 else [])])


def listed(names: Sequence[str], most: int) -> str:
    """Return the first ``most`` names on one line, and the number of the others: ``a, b and 7 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def one_line(text: str) -> str:
    r"""Return ``text`` with each character that is not printable escaped, such as ``\n`` or ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{ending}": base ** (power + 1)
    for power, prefix in enumerate("KMGT")
    for ending, base in (("B", 1000), ("IB", 1024))
}


def parse_size(text: str, name: str) -> int:
    """Return the bytes in a text such as ``128MiB``, ``1.5GB`` or ``4096``; ``name`` is the parameter."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if not match or match[2].upper() not in _UNITS:
        raise OptionsError(f"{name}={text!r} must be a size such as 128MiB, 1.5GB or 4096")
    return int(Fraction(match[1]) * _UNITS[match[2].upper()])


def check_path(name: str, value: object) -> None:
    """Raise OptionsError unless the argument ``name`` is a path."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise OptionsError(f"{name}={value!r} must be a path")


def check_strings(name: str, value: object) -> None:
    """Raise OptionsError unless the argument ``name`` is a list or a tuple of strings."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise OptionsError(f"{name}={value!r} must be a list of strings")


def check_flags(**flags: object) -> None:
    """Raise OptionsError unless each argument, given by its name, is True or False."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise OptionsError(f"{name}={value!r} must be True or False")


def check_instance(name: str, value: object, kind: type) -> None:
    """Raise OptionsError unless the argument ``name`` is an instance of a class."""
    if not isinstance(value, kind):
        raise OptionsError(f"{name}={value!r} must be {kind.__name__}(...)")
