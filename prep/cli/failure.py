"""What an error becomes on the command line: a message, a JSON object, and an exit status."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from tfshards.prep import install_text
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


def flags_of(message: str, parser: argparse.ArgumentParser) -> str:
    """Return the flags of the parameters that a message names, as a line to add to it; or nothing."""
    flags = {each.dest: each.option_strings[-1] for each in parser._actions if each.option_strings}
    named = dict.fromkeys(re.findall(r"(?<![\w/.-])([a-z]\w*)=", message))
    found = [flags[name] for name in named if name in flags and f"{flags[name]} " not in f"{message} "]
    return f"\n  on the command line: {', '.join(found)}" if found else ""


def _path_of(error: Exception) -> str | None:
    if isinstance(error, FormatError):
        # the subject is a file, except where the problems are those of several
        return error.subject if os.path.isfile(error.subject) else None
    path = getattr(error, "path", None)
    return None if path is None else str(path)
