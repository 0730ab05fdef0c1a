"""Errors of object stores as errors of the operating system, in words that say what to do."""

from __future__ import annotations

import errno
import re
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tfshards.schemas.storage.stores import note_answer, require_obstore

_OTHER_REGION = (errno.EREMOTE, "the bucket is in another region; set AWS_REGION to it")
_EXPIRED = (errno.EACCES, "the credentials have expired; get new ones, and run this again")
_BUSY = (errno.EBUSY, "the store limits the rate of requests, and did so until the last attempt")
# The code in the XML with which S3, and in its XML interface Google's store, answer.
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CODES: dict[str, tuple[int, str]] = {
    "NoSuchBucket": (errno.ENOENT, "there is no such bucket"),
    "ContainerNotFound": (errno.ENOENT, "there is no such container"),
    "AccessDenied": (errno.EACCES, "the credentials do not allow this"),
    "InvalidAccessKeyId": (errno.EACCES, "the access key is not known; check AWS_ACCESS_KEY_ID"),
    "SignatureDoesNotMatch": (errno.EACCES, "the secret key is wrong; check AWS_SECRET_ACCESS_KEY"),
    "ExpiredToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "RequestTimeTooSkewed": (errno.EACCES, "the clock of this machine is wrong"),
    "AuthorizationHeaderMalformed": _OTHER_REGION,
    "IllegalLocationConstraintException": _OTHER_REGION,
    "InvalidRange": (errno.ESTALE, "is shorter than it was"),
    "SlowDown": _BUSY,
    "ServerBusy": _BUSY,
}
_WORDS: tuple[tuple[str, int, str], ...] = (
    (
        "Error performing token request",
        errno.EACCES,
        "there are no credentials; for Google Cloud Storage run `gcloud auth application-default login`, or "
        "set GOOGLE_APPLICATION_CREDENTIALS; for Azure set AZURE_STORAGE_ACCOUNT_NAME and _KEY",
    ),
    # S3 names no other address when a bucket is in another region
    ("redirect without LOCATION", *_OTHER_REGION),
    ("TimedOut", errno.ETIMEDOUT, "the store did not answer in time"),
    ("dns error", errno.EHOSTUNREACH, "the address of the store is not known"),
    ("Connection refused", errno.ECONNREFUSED, "no server answers at the address of the store"),
    ("ConnectError", errno.ECONNREFUSED, "the store cannot be reached"),
    ("503 Service Unavailable", *_BUSY),
    ("429 Too Many Requests", *_BUSY),
    ("request or response body error", errno.EIO, "the connection was cut while data were sent"),
    ("error sending request", errno.EIO, "the connection to the store failed"),
)
# rows of ``_WORDS`` whose cause may be a wrong address
_OF_ADDRESS = ("TimedOut", "dns error", "Connection refused", "ConnectError", "error sending request")
# errors that only a store at the right address returns
_ANSWERS = (errno.EEXIST, errno.ESTALE, errno.ENOENT)
# the address of a request, without a user, a key or a query
_REQUESTED = re.compile(r"Error performing [A-Z]+ (https?://[^/\s?#@]+)(?=[/\s?#])")
# Seconds before a listing is repeated.
WAITS = (0.2, 1, 3)
# A listing that failed for so long, in seconds, was repeated by the client.
_REPEATED_BY_CLIENT = 30
Result = TypeVar("Result")
# of a text that is not known; the rest may be a page of nested errors
_MOST_CHARACTERS = 300


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
        exceptions.PermissionDeniedError: (errno.EACCES, "the credentials do not allow this"),
        exceptions.UnauthenticatedError: (errno.EACCES, "the credentials do not allow this"),
    }
    try:
        yield
        note_answer(path)
    except (FileNotFoundError, exceptions.BaseError) as error:
        number, why = _number_and_why(str(error), *kinds.get(type(error), (errno.EIO, "")))
        if number in _ANSWERS:
            note_answer(path)
        # OSError chooses the class that belongs to the number
        kind = ChangedError if number == errno.ESTALE else OSError
        raise kind(number, why, str(path)) from None


def _number_and_why(text: str, number: int, why: str) -> tuple[int, str]:
    """Return the error of a code or of words in the client's text; by default the given one."""
    code = _CODE.search(text)
    if code and code[1] in _CODES:
        return _CODES[code[1]]
    if why:
        return number, why
    found = next((row for row in _WORDS if row[0] in text), None)
    if not found:
        return number, textwrap.shorten(text, _MOST_CHARACTERS, placeholder="...")
    address = _REQUESTED.search(text) if found[0] in _OF_ADDRESS else None
    return found[1], f"{found[2]} ({address[1]})" if address else found[2]


def repeated(call: Callable[[], Result]) -> Result:
    """Return the result of a call, repeated if the connection is cut: the client repeats no listing."""
    waits = iter(WAITS)
    while True:
        start = time.monotonic()
        try:
            return call()
        except OSError as error:
            wait_after_cut(error, start, waits)


def wait_after_cut(error: OSError, start: float, waits: Iterator[float]) -> None:
    """Wait before a listing is repeated that began at a time, or raise its error again."""
    is_cut = error.errno == errno.EIO and time.monotonic() - start <= _REPEATED_BY_CLIENT
    seconds = next(waits, None) if is_cut else None
    if seconds is None:
        raise error
    time.sleep(seconds)


def too_short(path: object, end: int, expected: int) -> ChangedError:
    """Return the error that a file ends at the byte ``end`` instead of ``expected`` or later."""
    return ChangedError(None, f"ends at byte {end}, before byte {expected}", str(path))
