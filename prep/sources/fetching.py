"""Files and objects, unchanged since they were listed; many objects are requested before they are needed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from tfshards.schemas import InputError
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.any_path import on_disk
from tfshards.schemas.storage.reader import NUM_REQUESTS, in_background, stamp_of
from tfshards.schemas.storage.untrusted import open_regular, read_most
from tfshards.schemas.storage.verbs import may_pass

Item = TypeVar("Item")
Found = TypeVar("Found")
_COPY_BYTES = 1 << 20


class FetchedContent(NamedTuple):
    """A file or an object when it was read; ``data`` is None if there are more bytes than were allowed."""

    size: int
    stamp: int
    data: bytes | None


def read_content(path: bytes | AnyPath, most_bytes: int) -> FetchedContent:
    """Return a file or an object, without its bytes if there are too many, or raise OSError."""
    status, content = read_most(path, most_bytes)
    return FetchedContent(status.st_size, stamp_of(status), content)


def read_as_listed(path: bytes | AnyPath, size: int, stamp: int, most_bytes: int) -> FetchedContent:
    """Return a file or an object; without its bytes, and unread, if there are more than ``most_bytes``.

    Raises:
        InputError: it cannot be read, or has changed since it was listed with ``size`` and ``stamp``.
    """
    if size > most_bytes:
        return FetchedContent(size, stamp, None)
    try:
        content = read_content(path, size)
    except OSError as error:
        raise unreadable(path, error) from None
    if (content.size, content.stamp) != (size, stamp) or content.data is None:
        raise changed(path)
    return content


@contextmanager
def local_copy(path: AnyPath) -> Iterator[Path]:
    """Yield a file itself, or of an object a copy on this machine, which is removed after the block.

    What was mapped or opened by then stays readable.
    """
    if local := on_disk(path):
        yield local
        return
    with tempfile.NamedTemporaryFile(prefix="tfshards-") as copy:
        with open_regular(path, buffering=0) as source:
            shutil.copyfileobj(source, copy, _COPY_BYTES)
        copy.flush()
        yield Path(copy.name)


def changed(path: AnyPath | bytes) -> InputError:
    """Return the error for an input that was replaced since it was listed."""
    shown = os.fsdecode(path) if isinstance(path, bytes) else path
    return InputError(f"{shown}: changed after the build listed it; build again", code="file-changed")


def unreadable(path: AnyPath | bytes | str, error: OSError) -> InputError:
    """Return the error for an input that cannot be read."""
    shown = os.fsdecode(path) if isinstance(path, bytes) else path
    remedy = "; run the same command again to resume" if may_pass(path, error) else ""
    return InputError(f"{shown}: cannot be read: {error.strerror or error}{remedy}", code="unreadable")


# Bytes that one iterator holds before they are needed; several are read at the same time.
_MOST_AHEAD = 16 << 20
_MOST_CALLS = 2 * NUM_REQUESTS


def fetched_ahead(
    fetch: Callable[[Item], Found], items: Iterable[Item], num_bytes: Callable[[Item], int]
) -> Iterator[Found]:
    """Yield what ``fetch`` returns for each item, in order, while calls for the next items are made.

    Twice ``NUM_REQUESTS`` calls are ahead, so that no connection idles while results are used; fewer if they
    have many ``num_bytes``, but always one.
    """
    ahead: deque[tuple[Future[Found], int]] = deque()
    held = 0
    try:
        for item in items:
            size = num_bytes(item)
            while ahead and (len(ahead) == _MOST_CALLS or held + size > _MOST_AHEAD):
                future, done = ahead.popleft()
                held -= done
                yield future.result()
            ahead.append((in_background(fetch, item), size))
            held += size
        while ahead:
            yield ahead.popleft()[0].result()
    finally:
        for future, _ in ahead:
            future.cancel()
