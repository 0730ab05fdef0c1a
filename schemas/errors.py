"""The errors that tfshards raises on purpose, and the problem list that validators fill.

Every message says what was wrong, where, what was found against what is allowed, and the remedy. Anything
else that comes out of tfshards is a bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# The problems that the text of a FormatError lists; a damaged shard list could fill a terminal for minutes.
MAX_LISTED = 20


class TfshardsError(Exception):
    """Base of all errors that tfshards raises on purpose; each argument is a line of the message.

    A name in a line may hold anything that a file system allows; printed, it neither ends the line nor steers
    the terminal.
    """

    def __str__(self) -> str:
        return "\n".join(one_line(str(line)) for line in self.args)


class OptionsError(TfshardsError, ValueError):
    """An option is wrong by itself, before anything was read from disk (exit status 2)."""


class InputError(TfshardsError):
    """The input does not allow what was asked: a folder without images, arrays of different lengths."""


class BuildError(TfshardsError):
    """A build ended before its commit; the output holds no new dataset."""


@dataclass(frozen=True)
class Problem:
    """One fault that a validator found.

    Attributes:
        place: where, for example ``splits.train.shards[3].num_bytes`` or a shard's path.
        message: what was found against what is allowed.
    """

    place: str
    message: str

    def __str__(self) -> str:
        return one_line(f"{self.place}: {self.message}")


class FormatError(TfshardsError, ValueError):
    """A file of a dataset breaks the format; ``problems`` holds every fault found, not only the first."""

    def __init__(self, subject: str, problems: Sequence[Problem]) -> None:
        # both as they came, so that the error can be pickled across processes
        super().__init__(subject, problems)
        self.subject = subject
        self.problems = tuple(problems)

    def __str__(self) -> str:
        number = len(self.problems)
        lines = [one_line(f"{self.subject}: {number} problem{'s' if number != 1 else ''}")]
        lines += [f"  {problem}" for problem in self.problems[:MAX_LISTED]]
        if number > MAX_LISTED:
            lines.append(f"  and {number - MAX_LISTED} more")
        return "\n".join(lines)


def one_line(text: str) -> str:
    r"""Return ``text`` with each character that is not printable as an escape, such as ``\n`` or ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )
