"""Errors of object stores as errors of the operating system, in words that say what to do."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from tfshards.schemas.storage.endpoints import shown_address
from tfshards.schemas.storage.stores import note_answer, require_obstore

# The code in the XML with which S3, and in its XML interface Google's store, answer.
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CODES: dict[str, tuple[int, str]] = {
    "NoSuchBucket": (errno.ENOENT, "there is no such bucket"),
    "ContainerNotFound": (errno.ENOENT, "there is no such container"),
    "AccessDenied": (errno.EACCES, "the credentials do not allow this"),
    "InvalidAccessKeyId": (errno.EACCES, "the access key is not known; check AWS_ACCESS_KEY_ID"),
    "SignatureDoesNotMatch": (errno.EACCES, "the secret key is wrong; check AWS_SECRET_ACCESS_KEY"),
    "ExpiredToken": (errno.EACCES, "the credentials have expired; get new ones, and run this again"),
    "TokenRefreshRequired": (errno.EACCES, "the credentials have expired; get new ones, and run this again"),
    "RequestTimeTooSkewed": (errno.EACCES, "the clock of this machine is wrong"),
    "AuthorizationHeaderMalformed": (errno.EREMOTE, "the bucket is in another region; set AWS_REGION to it"),
    "IllegalLocationConstraintException": (
        errno.EREMOTE,
        "the bucket is in another region; set AWS_REGION to it",
    ),
    "InvalidRange": (errno.ESTALE, "is shorter than it was"),
    "SlowDown": (errno.EBUSY, "the store limits the rate of requests, and did so until the last attempt"),
    "ServerBusy": (errno.EBUSY, "the store limits the rate of requests, and did so until the last attempt"),
}
_WORDS: tuple[tuple[str, int, str], ...] = (
    (
        "Error performing token request",
        errno.EACCES,
        "there are no credentials; for Google Cloud Storage run `gcloud auth application-default login`, or "
        "set GOOGLE_APPLICATION_CREDENTIALS; for Azure set AZURE_STORAGE_ACCOUNT_NAME and _KEY",
    ),
    # S3 names no other address when a bucket is in another region
    ("redirect without LOCATION", errno.EREMOTE, "the bucket is in another region; set AWS_REGION to it"),
    ("TimedOut", errno.ETIMEDOUT, "the store did not answer in time"),
    ("dns error", errno.EHOSTUNREACH, "the address of the store is not known"),
    ("Connection refused", errno.ECONNREFUSED, "no server answers at the address of the store"),
    ("ConnectError", errno.ECONNREFUSED, "the store cannot be reached"),
    ("503 Service Unavailable", *_CODES["SlowDown"]),
    ("429 Too Many Requests", *_CODES["SlowDown"]),
    ("request or response body error", errno.EIO, "the connection was cut while data were sent"),
    ("error sending request", errno.EIO, "the connection to the store failed"),
)
# rows of ``_WORDS`` whose cause may be a wrong address
_OF_ADDRESS = ("TimedOut", "dns error", "Connection refused", "ConnectError", "error sending request")
# Seconds before a listing is repeated.
WAITS = (0.2, 1, 3)
# A listing that failed for so long, in seconds, was repeated by the client.
REPEATED_BY_CLIENT = 30
Result = TypeVar("Result")
# of a text that is not known; the rest may be a page of nested errors
_MOST_CHARACTERS = 300


class Address(Protocol):
    """An address in an object store, whose text is its URL."""

    @property
    def scheme(self) -> str:
        """Its scheme, such as ``s3``."""


class ChangedError(OSError):
    """An object is no longer the one that was read before, or that a write was to replace."""


@contextmanager
def as_os_errors(path: Address) -> Iterator[None]:
    """Raise an error of the client as the OSError that a local file would raise; its file is ``path``."""
    exceptions = require_obstore().exceptions
    try:
        yield
        note_answer(path.scheme)
    except exceptions.AlreadyExistsError:
        note_answer(path.scheme)
        raise FileExistsError(errno.EEXIST, "exists already", str(path)) from None
    except exceptions.PreconditionError:
        note_answer(path.scheme)
        raise ChangedError(errno.ESTALE, "was replaced in the meantime", str(path)) from None
    except FileNotFoundError as error:
        note_answer(path.scheme)
        raise _os_error(path, str(error), errno.ENOENT, "there is no such object") from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise _os_error(path, str(error), errno.EACCES, "the credentials do not allow this") from None
    except exceptions.BaseError as error:
        raise _os_error(path, str(error), errno.EIO, "") from None


def _os_error(path: Address, text: str, number: int, why: str) -> OSError:
    """Return the error of a code or of words in the client's text; by default the error of ``number``."""
    code = _CODE.search(text)
    if code and code[1] in _CODES:
        number, why = _CODES[code[1]]
    elif not why:
        found = next((row for row in _WORDS if row[0] in text), None)
        number, why = found[1:] if found else (number, _shortened(text))
        address = shown_address(text) if found and found[0] in _OF_ADDRESS else ""
        if address:
            why += f" ({address})"
    if number == errno.ESTALE:
        return ChangedError(number, why, str(path))
    # OSError chooses the class that belongs to the number
    return OSError(number, why, str(path))


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}..."


def repeated(call: Callable[[], Result]) -> Result:
    """Return the result of a call, which is repeated if the connection is cut: the client repeats no listing.

    Raises:
        OSError: the call fails for another reason, or each time.
    """
    for seconds in WAITS:
        start = time.monotonic()
        try:
            return call()
        except OSError as error:
            if error.errno != errno.EIO or time.monotonic() - start > REPEATED_BY_CLIENT:
                raise
        time.sleep(seconds)
    return call()


def too_short(path: object, end: int, expected: int) -> ChangedError:
    """Return the error that a file ends at the byte ``end`` instead of ``expected`` or later."""
    return ChangedError(None, f"ends at byte {end}, before byte {expected}", str(path))
