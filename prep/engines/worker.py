"""What workers of Beam need, which they check before their first item; how their errors return."""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from tfshards.prep.engines.work import Work
from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.schemas import BuildError, TfshardsError
from tfshards.schemas.storage import AnyPath


@contextmanager
def needed_paths(work: Work) -> Iterator[tuple[AnyPath, ...]]:
    """Yield files and folders that workers must see, with a token in the folder of the work until the end."""
    # another folder with the same path has no file with this name
    token = work.folder / f"token-{secrets.token_hex(8)}"
    token.put(b"")
    try:
        yield token, *map(_first_entry, work.sources)
    finally:
        token.unlink(missing_ok=True)


def _first_entry(source: AnyPath) -> AnyPath:
    """Return something in a folder, since another one may have the same path; or a file itself."""
    if source.is_far or not source.is_dir():
        return source
    # only one, since a folder may have millions of them
    with os.scandir(str(source)) as entries:
        return next((source / entry.name for entry in entries), source)


def check_worker(versions: Mapping[str, str], paths: Sequence[AnyPath]) -> None:
    """Raise BuildError if this process has other versions than the main process, or does not see paths."""
    own = own_versions()
    for name, number in versions.items():
        if own.get(name) != number:
            listed = ", ".join(f"{package} {release}" for package, release in versions.items())
            raise BuildError(
                f"a worker on {platform.node()} has {name} {own.get(name, 'not at all')}, but the command "
                f"runs with {number}; give every worker the same versions: {listed}"
            )
    for path in paths:
        try:
            why = "" if path.is_taken() else "it does not exist there"
        except (OSError, TfshardsError) as error:
            why = str(error)
        if why:
            raise BuildError(
                f"a worker on {platform.node()} does not see {path} ({why}); mount source and dataset on "
                "every worker under the same absolute paths, or, of a store, give every worker its address "
                "and credentials"
            )


def own_versions() -> dict[str, str]:
    """Return the version of each program and package on which the bytes of a dataset depend."""
    try:
        own = version("tfshards")
    except PackageNotFoundError:
        own = "without metadata"
    # pickled code of one minor version of Python does not run on another
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"Python": python, "tfshards": own, **decoder_versions()}


# An error of a worker in what an engine reports; the encoding survives the quoting of Java and JSON.
_MARK = re.compile(r"\[tfshards:([A-Za-z0-9+/=]+)\]")


@contextmanager
def marking_errors() -> Iterator[None]:
    """Raise an error again as one whose text has its text and code, which is what engines report of it.

    An error of the system has its number, text and file. All is JSON, since the name of an input, which may
    be in any text, must not run code.
    """
    try:
        yield
    except Exception as error:
        text = str(error) if isinstance(error, TfshardsError) else f"{type(error).__name__}: {error}"
        content: list[object] = [text, getattr(error, "code", "")]
        if isinstance(error, OSError) and error.errno:
            content = [error.errno, error.strerror, error.filename]
        mark = b64encode(json.dumps(content, default=str).encode()).decode()
        raise RuntimeError(f"{error} [tfshards:{mark}]") from error


def marked_error(failure: BaseException) -> BuildError | OSError | None:
    """Return the error of a worker in the error of an engine, if there is one."""
    try:
        first, *others = json.loads(b64decode(_MARK.findall(str(failure))[-1]))
        return (
            OSError(first, *others)
            if isinstance(first, int)
            else BuildError(*first.splitlines(), code=others[0])
        )
    except (IndexError, ValueError, TypeError, AttributeError):
        return None
