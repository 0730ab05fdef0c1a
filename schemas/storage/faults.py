"""Errors of object stores as errors of the operating system, in words that say what to do."""

from __future__ import annotations

import errno
import re
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tfshards.schemas.storage.stores import require_obstore

_OTHER_REGION = (errno.EREMOTE, "the bucket is in another region; set AWS_REGION to it")
_FORBIDDEN = (errno.EACCES, "the credentials do not allow this")
_BUSY = (errno.EBUSY, "the store limits the rate of requests, and did so until the last attempt")
_UNREACHABLE = (errno.ECONNREFUSED, "no server answers at the address of the store")
# What is in the text of the client, in the order in which it is looked for: first the codes of S3, and of the
# XML interface of Google's store.
_WORDS: tuple[tuple[str, int, str], ...] = (
    ("<Code>NoSuchBucket<", errno.ENOENT, "there is no such bucket"),
    ("<Code>ContainerNotFound<", errno.ENOENT, "there is no such container"),
    ("<Code>AccessDenied<", *_FORBIDDEN),
    ("<Code>InvalidAccessKeyId<", errno.EACCES, "the access key is not known; check AWS_ACCESS_KEY_ID"),
    ("<Code>SignatureDoesNotMatch<", errno.EACCES, "the secret key is wrong; check AWS_SECRET_ACCESS_KEY"),
    ("<Code>ExpiredToken<", errno.EACCES, "the credentials have expired; get new ones, and run this again"),
    ("<Code>RequestTimeTooSkewed<", errno.EACCES, "the clock of this machine is wrong"),
    ("<Code>AuthorizationHeaderMalformed<", *_OTHER_REGION),
    ("<Code>IllegalLocationConstraintException<", *_OTHER_REGION),
    # S3 names no other address when a bucket is in another region
    ("redirect without LOCATION", *_OTHER_REGION),
    ("<Code>InvalidRange<", errno.ESTALE, "is shorter than it was"),
    ("<Code>SlowDown<", *_BUSY),
    ("<Code>ServerBusy<", *_BUSY),
    ("503 Service Unavailable", *_BUSY),
    ("429 Too Many Requests", *_BUSY),
    (
        "Error performing token request",
        errno.EACCES,
        "there are no credentials; for Google Cloud Storage run `gcloud auth application-default login`, or "
        "set GOOGLE_APPLICATION_CREDENTIALS; for Azure set AZURE_STORAGE_ACCOUNT_NAME and _KEY",
    ),
    ("TimedOut", errno.ETIMEDOUT, "the store did not answer in time"),
    ("dns error", errno.EHOSTUNREACH, "the address of the store is not known"),
    ("Connection refused", *_UNREACHABLE),
    ("ConnectError", *_UNREACHABLE),
    ("request or response body error", errno.EIO, "the connection was cut while data were sent"),
    ("error sending request", errno.EIO, "the connection to the store failed"),
)
# the address of a request, without a user, a key or a query
_REQUESTED = re.compile(r"Error performing [A-Z]+ (https?://[^/\s?#@]+)(?=[/\s?#])")
# Seconds before a listing is repeated, and after how many the client has repeated it already.
_WAITS = (0.2, 1, 3)
_REPEATED_BY_CLIENT = 30
# of a text that is not known; the rest may be a page of nested errors
_MOST_CHARACTERS = 300
Page = TypeVar("Page")


class ChangedError(OSError):
    """An object is no longer the one that was read before, or that a write was to replace."""


@contextmanager
def as_os_errors(path: object) -> Iterator[None]:
    """Raise an error of the client as the OSError that a local file would raise, with the remote ``path``."""
    exceptions = require_obstore().exceptions
    kinds = {
        exceptions.AlreadyExistsError: (errno.EEXIST, "exists already"),
        exceptions.PreconditionError: (errno.ESTALE, "was replaced in the meantime"),
        FileNotFoundError: (errno.ENOENT, "there is no such object"),
        exceptions.PermissionDeniedError: _FORBIDDEN,
        exceptions.UnauthenticatedError: _FORBIDDEN,
    }
    try:
        yield
    except (FileNotFoundError, exceptions.BaseError) as error:
        text = str(error)
        row = next((row for row in _WORDS if row[0] in text), None)
        if type(error) in kinds and not (row and row[0].startswith("<Code>")):
            number, why = kinds[type(error)]
        elif row:
            address = None if row[0].startswith("<Code>") else _REQUESTED.search(text)
            number, why = row[1], f"{row[2]} ({address[1]})" if address else row[2]
        else:
            number, why = errno.EIO, textwrap.shorten(text, _MOST_CHARACTERS, placeholder="...")
        # OSError chooses the class that belongs to the number
        kind = ChangedError if number == errno.ESTALE else OSError
        raise kind(number, why, str(path)) from None


def repeated(pages: Callable[[], Iterator[Page]]) -> Iterator[Page]:
    """Yield the pages of a listing, which is begun again if the connection is cut: no client repeats it.

    ``pages`` begins after what was listed before.
    """
    waits, start = iter(_WAITS), time.monotonic()
    while True:
        try:
            yield from pages()
            return
        except OSError as error:
            is_cut = error.errno == errno.EIO and time.monotonic() - start <= _REPEATED_BY_CLIENT
            seconds = next(waits, None) if is_cut else None
            if seconds is None:
                raise
        time.sleep(seconds)
        start = time.monotonic()


def too_short(path: object, end: int, expected: int) -> ChangedError:
    """Return the error that a file ends at the byte ``end`` instead of ``expected`` or later."""
    return ChangedError(None, f"ends at byte {end}, before byte {expected}", str(path))
