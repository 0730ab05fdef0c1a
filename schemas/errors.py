"""The errors that tfshards raises on purpose, and the problems that validators collect.

Every message names what is wrong, where, what was found, what is allowed, and what to do. Any other exception
raised by tfshards is a bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Maximum number of problems in the text of a FormatError; a damaged list of shards may have thousands.
MAX_LISTED = 20


class TfshardsError(Exception):
    """Base class of all errors that tfshards raises on purpose; each argument is a line of the message.

    Characters that are not printable, as file names may contain, are escaped when the message is printed.

    Attributes:
        remedy: what to do, which is also the end of the message; None if the error does not state it.
    """

    remedy: str | None = None

    def __init__(self, *lines: object, remedy: str | None = None) -> None:
        if remedy is not None:
            *first, last = lines
            lines = (*first, f"{last}; {remedy}")
            self.remedy = remedy
        super().__init__(*lines)

    def __str__(self) -> str:
        return "\n".join(one_line(str(line)) for line in self.args)


class OptionsError(TfshardsError, ValueError):
    """An option is invalid, whatever the input is (exit status 2)."""


class InputError(TfshardsError):
    """The input is not suitable, such as a folder without images or arrays of different lengths."""


class BuildError(TfshardsError):
    """A build ended before its commit; the output folder holds no new dataset."""


class IncompleteError(BuildError):
    """The new dataset is committed, but something in addition to it, such as a view, could not be written.

    The exit status is 3. The next command on the dataset completes it.
    """


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
        # unpickling in another process calls __init__ with these
        super().__init__(subject, problems)
        self.subject = subject
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.max_listed = MAX_LISTED

    def __str__(self) -> str:
        number = len(self.problems)
        lines = [one_line(f"{self.subject}: {number} problem{'s' if number != 1 else ''}")]
        lines += [f"  {problem}" for problem in self.problems[: self.max_listed]]
        if number > self.max_listed:
            lines.append(f"  and {number - self.max_listed} more")
        return "\n".join(lines)


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
