"""What an error becomes on the command line: a message, a JSON object, and an exit status."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from tfshards.prep import install_text
from tfshards.prep.cli.parser import Parser
from tfshards.schemas import BuildError, FormatError, InputError, OptionsError, TfshardsError
from tfshards.schemas.errors import one_line
from tfshards.schemas.json_reader import Json

# The kind and exit status of each class of errors: the first one that fits.
_KINDS: tuple[tuple[type[Exception], str, int], ...] = (
    (OptionsError, "options", 2),
    (InputError, "input", 1),
    (FormatError, "format", 1),
    (BuildError, "build", 1),
    (TfshardsError, "data", 1),
    (OSError, "system", 1),
)
# Python's message if the system refuses a thread: of the limit of processes, or of memory.
_NO_THREAD = "can't start new thread"


class Failure(NamedTuple):
    """An error that ends a command: its exit status, and what ``--json`` prints."""

    status: int
    kind: str
    message: str
    path: str | None = None
    code: str = ""

    def to_json(self) -> dict[str, Json]:
        """Return the object that ``--json`` prints."""
        code = self.code or self.kind
        return {"kind": self.kind, "code": code, "message": self.message, "path": self.path}


def failure_of(error: Exception, arguments: Sequence[str]) -> Failure:
    """Return what an error becomes; its kind is ``internal`` if it is a defect of the program.

    Args:
        error: the error.
        arguments: the command line.
    """
    if isinstance(error, (RuntimeError, BuildError)) and _NO_THREAD in str(error):
        remedy = "give a smaller number of jobs with --jobs, or raise the limit of processes (ulimit -u)"
        return Failure(1, "system", f"the system refused to start a thread; {remedy}")
    if isinstance(error, ModuleNotFoundError):
        # any other missing module is a defect
        with suppress(ModuleNotFoundError):
            message = install_text(error, next(iter(arguments), "tfshards"))
            return Failure(1, "missing", message)
    fitting = [(name, status) for kind, name, status in _KINDS if isinstance(error, kind)]
    if not fitting:
        return Failure(1, "internal", one_line(f"{type(error).__name__}: {error}"))
    kind, status = fitting[0]
    if isinstance(error, OSError):
        name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else None
        text = one_line(f"{name or 'operating system'}: {error.strerror}") if error.strerror else str(error)
        return Failure(status, kind, text, name)
    assert isinstance(error, TfshardsError)
    return Failure(status, kind, str(error), _path_of(error), code=error.code)


def origin_of(message: str, parser: Parser) -> str:
    """Return lines with the flags, and keys of a file of options, that set the parameters in a message."""
    flags = {each.dest: each.option_strings[-1] for each in parser._actions if each.option_strings}
    origins: dict[str, list[str]] = {}
    for name in dict.fromkeys(re.findall(r"(?<![\w/.-])([a-z]\w*)=", message)):
        if name in parser.config.values and name not in parser.given:
            origins.setdefault(f"in {parser.config.path}", []).append(name)
        elif name in flags and f"{flags[name]} " not in f"{message} ":
            origins.setdefault("on the command line", []).append(flags[name])
    return "".join(f"\n  {where}: {', '.join(names)}" for where, names in origins.items())


def _path_of(error: Exception) -> str | None:
    if isinstance(error, FormatError):
        # the subject is a file, except where the problems are those of several
        return error.subject if os.path.isfile(error.subject) else None
    path = getattr(error, "path", None)
    return None if path is None else str(path)
