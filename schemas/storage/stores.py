"""The clients of object stores, one per bucket and process, their retries, and their errors.

Credentials are found in the environment, where the tools of each store look for them, and stay inside the
client: a ``RemotePath``, which goes into job graphs and error messages, holds none.
"""

from __future__ import annotations

import errno
import os
import re
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from tfshards.schemas.errors import InputError, OptionsError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = {"s3": "Amazon S3", "gs": "Google Cloud Storage", "az": "Azure Blob Storage"}
# by scheme; obstore reads all but the emulator's
_ADDRESSES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("STORAGE_EMULATOR_HOST", "GOOGLE_BASE_URL"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURITE_BLOB_STORAGE_URL"),
}
_ADDRESS = re.compile(r"https?://[^\s@/]+(/\S*)?", re.IGNORECASE)
# A request that ends in an error is repeated until this time has passed, before that number of attempts.
# Waits are random, up to ``base`` times the one before, and would not grow with 2.
_RETRIES = {
    "max_retries": 1000,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 4},
}
# The time until the first byte of an answer includes sending the request, which for the parts of an
# upload, sent at the same time, is longer.
_CLIENT = {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "1h"}
_UPLOADS = {**_CLIENT, "read_timeout": "2m"}
# Seconds before a listing that was cut is continued.
LISTING_WAITS = (0.2, 1, 3)
_making = threading.Lock()
# What names the endpoint and the credentials; a program may change them between two datasets.
_VARIABLES = (
    *(variable for variables in _ADDRESSES.values() for variable in variables),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"),
    *("GOOGLE_BEARER_TOKEN", "AZURE_STORAGE_ACCOUNT_NAME"),
)

# What is in the class and the text of an error of the client, in the order in which it is looked for. The
# braces are for the code of the store, or the address of the request.
_ERRORS: tuple[tuple[str, int, str], ...] = (
    ("<Code>NoSuchBucket<", errno.ENOENT, "there is no such bucket"),
    (
        # S3 names no other address when a bucket is in another region
        "AuthorizationHeaderMalformed|IllegalLocationConstraintException|redirect without LOCATION",
        errno.EREMOTE,
        "the bucket is in another region; set AWS_REGION to it",
    ),
    ("<Code>InvalidRange<", errno.ESTALE, "is shorter than it was"),
    (
        "<Code>SlowDown<|<Code>ServerBusy<|503 Service Unavailable|429 Too Many Requests",
        errno.EBUSY,
        "the store limits the rate of requests, and did so until the last attempt ({})",
    ),
    ("^AlreadyExistsError: ", errno.EEXIST, "exists already"),
    ("^PreconditionError: ", errno.ESTALE, "was replaced in the meantime"),
    ("NotFoundError: ", errno.ENOENT, "there is no such object"),
    (
        "^PermissionDeniedError: |^UnauthenticatedError: |<Code>ExpiredToken<",
        errno.EACCES,
        "the credentials do not allow this ({})",
    ),
    (
        "invalid path",
        errno.EINVAL,
        "it holds a key with an empty part, ., .. or a control character; rename that object, or remove it",
    ),
    (
        "Error performing token request",
        errno.EACCES,
        "there are no credentials; for Google Cloud Storage run `gcloud auth application-default login`, or "
        "set GOOGLE_APPLICATION_CREDENTIALS; for Azure set AZURE_STORAGE_ACCOUNT_NAME and _KEY",
    ),
    ("request or response body error", errno.ECONNRESET, "the connection was cut while data were sent"),
    ("error sending request", errno.EIO, "the connection to the store failed ({})"),
)
_CODE = re.compile(r"<Code>(\w+)<")
# the address of a request, without a user, a key or a query
_REQUESTED = re.compile(r"Error performing [A-Z]+ (https?://[^/\s?#@]+)(?=[/\s?#])")
# of a text that is not known; the rest may be a page of nested errors
_MOST_CHARACTERS = 300


class ChangedError(OSError):
    """An object is no longer the one that was read before, or that a write was to replace."""


def too_short(path: object, end: int, expected: int) -> ChangedError:
    """Return the error that a file ends at the byte ``end`` instead of ``expected`` or later."""
    return ChangedError(None, f"ends at byte {end}, before byte {expected}", str(path))


@contextmanager
def as_os_errors(path: object) -> Iterator[None]:
    """Raise an error of the client as the OSError that a local file would raise, with the remote ``path``."""
    try:
        yield
    except (FileNotFoundError, require_obstore().exceptions.BaseError) as error:
        text = f"{type(error).__name__}: {error}"
        # a query may hold a signature
        shown = textwrap.shorten(
            re.sub(r"(://[^\s?]*)\?\S+", r"\1", str(error)), _MOST_CHARACTERS, placeholder="..."
        )
        rows = (row[1:] for row in _ERRORS if re.search(row[0], text))
        number, why = next(rows, (errno.EIO, "{}"))
        detail = _CODE.search(text) or _REQUESTED.search(text)
        why = why.format(detail[1] if detail and why != "{}" else shown)
        # OSError chooses the class that belongs to the number
        kind = ChangedError if number == errno.ESTALE else OSError
        raise kind(number, why, str(path)) from None


def require_obstore() -> Any:  # noqa: ANN401 -- a module
    """Return the module ``obstore``, or raise OptionsError if it is not installed."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError:
        raise OptionsError(
            "object stores need the extra remote; install it: pip install 'tfshards[remote]'",
            code="extra-missing",
        ) from None
    return obstore


def store_of(scheme: str, bucket: str, *, uploads: bool = False) -> ObjectStore:
    """Return the client of a bucket; with ``uploads``, one that waits until long parts are sent."""
    # A process that was forked has none of the client's threads.
    with _making:
        _check_addresses(scheme)
        return _store(scheme, bucket, uploads, (os.getpid(), *map(os.environ.get, _VARIABLES)))


@cache
def _store(scheme: str, bucket: str, uploads: bool, _environment: tuple[object, ...]) -> ObjectStore:
    obstore = require_obstore()
    options: dict[str, Any] = {}
    if scheme == "s3":
        options = _s3_options()
    elif scheme == "gs" and (emulator := os.environ.get("STORAGE_EMULATOR_HOST")):
        # the variable of Google's own clients, which they reach without credentials
        # obstore asks for a token before it writes, also if it is to skip signatures
        options = {"base_url": emulator, "bearer_token": "emulator"}
    endpoints = [options.get("base_url"), *map(os.environ.get, _VARIABLES)]
    is_http = any(str(endpoint).lower().startswith("http://") for endpoint in endpoints)
    try:
        found: ObjectStore = obstore.store.from_url(
            f"{scheme}://{bucket}",
            client_options=(_UPLOADS if uploads else _CLIENT) | ({"allow_http": True} if is_http else {}),
            retry_config=_RETRIES,
            **options,
        )
    except (obstore.exceptions.BaseError, ValueError) as error:
        # the lines after the first one are values of Rust
        why = str(error).partition("\n")[0]
        raise InputError(f"{scheme}://{bucket}: {SCHEMES[scheme]} cannot be used: {why}") from None
    return found


def _s3_options() -> dict[str, Any]:
    """Return the credentials and the region of AWS's configuration files, if the environment has none."""
    pair = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    if os.environ.get("AWS_SKIP_SIGNATURE") or all(map(os.environ.get, pair)):
        return {}
    try:
        import boto3
        import botocore.exceptions
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    try:
        session = boto3.Session()
        if session.get_credentials() is None:
            raise InputError(
                f"there are no credentials for Amazon S3; set {pair[0]} and {pair[1]}, run `aws configure`, "
                "or set AWS_SKIP_SIGNATURE=true for a public bucket",
                code="no-credentials",
            )
        return {"credential_provider": Boto3CredentialProvider(session, ttl=timedelta(minutes=15))}
    except botocore.exceptions.BotoCoreError as error:
        raise InputError(f"the configuration of AWS cannot be used: {error}") from None


def _check_addresses(scheme: str) -> None:
    """Raise InputError if a variable does not hold an address, with which obstore ends with a panic."""
    for variable in _ADDRESSES[scheme]:
        value = os.environ.get(variable)
        if value is not None and not _ADDRESS.fullmatch(value):
            # its text may hold a password
            raise InputError(
                f"{variable} is not an address that begins with http:// or https://, such as "
                f"http://127.0.0.1:9000; correct it, or unset {variable}"
            )
