"""The clients of object stores: one per bucket and process, configured from the environment.

Credentials are found where the tools of each store look for them, and stay inside the client: a
``RemotePath``, which goes into job graphs and error messages, holds none.
"""

from __future__ import annotations

import os
import re
import threading
from datetime import datetime, timedelta, timezone
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
_ADDRESS = re.compile(
    r"https?://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?(?:/[^\s?#@]*)?", re.IGNORECASE
)
_MOST_PORT = 65535
# A request that ends in an error is repeated until this time has passed, before that number of attempts.
# Waits are random, up to ``base`` times the one before, and would not grow with 2.
_RETRIES = {
    "max_retries": 1000,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 4},
}
# Until a store has answered this process, its address may be wrong.
_FIRST_RETRIES = {
    "retry_timeout": timedelta(seconds=6),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 4},
}
# The time until the first byte of an answer includes sending the request, which for the parts of an
# upload, sent at the same time, is longer.
_CLIENT = {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "1h"}
_UPLOADS = {**_CLIENT, "read_timeout": "2m"}
# The credentials of files and roles are asked for again after this time.
_CREDENTIALS_LAST = timedelta(minutes=15)
_making = threading.Lock()
# processes and the schemes of stores that have answered them
_answered: set[tuple[int, str]] = set()
# What names the endpoint and the credentials; a program may change them between two datasets.
_VARIABLES = (
    *_ADDRESSES["s3"],
    *_ADDRESSES["gs"],
    *_ADDRESSES["az"],
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "GOOGLE_BEARER_TOKEN",
    "AZURE_STORAGE_ACCOUNT_NAME",
)


def store_of(scheme: str, bucket: str, *, uploads: bool = False) -> ObjectStore:
    """Return the client of a bucket; with ``uploads``, one that waits until long parts are sent."""
    # A process that was forked has none of the client's threads.
    with _making:
        _check_addresses(scheme)
        process = os.getpid()
        has_answered = (process, scheme) in _answered
        return _store(scheme, bucket, uploads, has_answered, (process, *map(os.environ.get, _VARIABLES)))


def note_answer(path: object) -> None:
    """Note that the store of a path has answered, so that from now on its failures are waited for."""
    _answered.add((os.getpid(), str(path).partition(":")[0]))


@cache
def _store(
    scheme: str, bucket: str, uploads: bool, has_answered: bool, _environment: tuple[object, ...]
) -> ObjectStore:
    obstore = require_obstore()
    options: dict[str, Any] = {}
    if scheme == "s3":
        options = _s3_options()
    elif scheme == "gs" and (emulator := os.environ.get("STORAGE_EMULATOR_HOST")):
        # the variable of Google's own clients, which they reach without credentials
        # obstore asks for a token before it writes, also if it is to skip signatures
        options = {"base_url": _emulator_address(emulator), "bearer_token": "emulator"}
    endpoints = [options.get("base_url"), *map(os.environ.get, _VARIABLES)]
    is_http = any(str(endpoint).lower().startswith("http://") for endpoint in endpoints)
    try:
        found: ObjectStore = obstore.store.from_url(
            f"{scheme}://{bucket}",
            client_options=(_UPLOADS if uploads else _CLIENT) | ({"allow_http": True} if is_http else {}),
            retry_config=_RETRIES if has_answered else _RETRIES | _FIRST_RETRIES,
            **options,
        )
    except (obstore.exceptions.BaseError, ValueError) as error:
        # the lines after the first one are values of Rust
        why = str(error).partition("\n")[0]
        raise InputError(
            "store-unusable", scheme=scheme, bucket=bucket, schemes=SCHEMES[scheme], why=why
        ) from None
    return found


def require_obstore() -> Any:  # noqa: ANN401 -- a module
    """Return the module ``obstore``, or raise OptionsError if it is not installed."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError:
        raise OptionsError("store-extra-missing") from None
    return obstore


def s3_client() -> Any:  # noqa: ANN401 -- boto3 makes its classes when it runs
    """Return a client of boto3, for what obstore cannot do; it raises the errors of botocore."""
    import boto3

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return boto3.client("s3", endpoint_url=endpoint or os.environ.get("AWS_ENDPOINT"))


def _s3_options() -> dict[str, Any]:
    """Return the credentials and the region of AWS's configuration files, if the environment has none."""
    if os.environ.get("AWS_SKIP_SIGNATURE"):
        return {}
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        if not os.environ.get("AWS_SECRET_ACCESS_KEY"):
            raise InputError("s3-half-credentials")
        return {}
    try:
        import boto3
        import botocore.exceptions
    except ImportError:
        return {}
    try:
        session = boto3.Session()
        credentials = session.get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise InputError("s3-configuration", error=error) from None
    if credentials is None:
        raise InputError("s3-no-credentials")

    def provide() -> dict[str, object]:
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(timezone.utc) + _CREDENTIALS_LAST,
        }

    options: dict[str, Any] = {"credential_provider": provide}
    if session.region_name:
        options["region"] = session.region_name
    return options


def _check_addresses(scheme: str) -> None:
    """Raise if a variable names no address, with which obstore ends with a panic; unset the empty ones."""
    for variable in _ADDRESSES[scheme]:
        value = os.environ.get(variable)
        if value == "":
            del os.environ[variable]
        if not value:
            continue
        found = _ADDRESS.fullmatch(_emulator_address(value) if variable == "STORAGE_EMULATOR_HOST" else value)
        if found is None or int(found["port"] or 0) > _MOST_PORT:
            shown = "" if "@" in value else f"={value}"
            raise InputError("endpoint-invalid", variable=variable, shown=shown)


def _emulator_address(host: str) -> str:
    """Return the address that Google's own clients use for ``STORAGE_EMULATOR_HOST``."""
    return host if "://" in host else f"http://{host}"
