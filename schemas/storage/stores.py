"""The clients of object stores: one per bucket and process, configured from the environment.

Credentials are found where the tools of each store look for them, and stay inside the client: a
``RemotePath``, which goes into job graphs and error messages, holds none.
"""

from __future__ import annotations

import os
import re
import threading
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
# The time until the first byte of an answer includes sending the request, which for the parts of an
# upload, sent at the same time, is longer.
_CLIENT = {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "1h"}
_UPLOADS = {**_CLIENT, "read_timeout": "2m"}
_making = threading.Lock()
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
        options = {"base_url": _emulator_address(emulator), "bearer_token": "emulator"}
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


def abort_uploads(bucket: str, key: str) -> None:
    """Abort the unfinished uploads of objects in a folder of a bucket of S3, which obstore cannot list."""
    import boto3
    import botocore.exceptions

    endpoint = next(filter(None, map(os.environ.get, _ADDRESSES["s3"])), None)
    try:
        client = boto3.client("s3", endpoint_url=endpoint)
        pages = client.get_paginator("list_multipart_uploads")
        for page in pages.paginate(Bucket=bucket, Prefix=f"{key}/" if key else ""):
            for each in page.get("Uploads", ()):
                client.abort_multipart_upload(Bucket=bucket, Key=each["Key"], UploadId=each["UploadId"])
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise OSError(None, f"cannot be listed: {error}", f"s3://{bucket}/{key}".rstrip("/")) from None


def _s3_options() -> dict[str, Any]:
    """Return the credentials and the region of AWS's configuration files, if the environment has none."""
    if os.environ.get("AWS_SKIP_SIGNATURE"):
        return {}
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        if not os.environ.get("AWS_SECRET_ACCESS_KEY"):
            raise InputError(
                "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not; set both, unset both and run "
                "`aws configure`, or set AWS_SKIP_SIGNATURE=true for a public bucket"
            )
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
                "there are no credentials for Amazon S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "run `aws configure`, or set AWS_SKIP_SIGNATURE=true for a public bucket",
                code="no-credentials",
            )
        return {"credential_provider": Boto3CredentialProvider(session, ttl=timedelta(minutes=15))}
    except botocore.exceptions.BotoCoreError as error:
        raise InputError(f"the configuration of AWS cannot be used: {error}") from None


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
            raise InputError(
                f"{variable}{shown} is not an address that begins with http:// or https://, such as "
                f"http://127.0.0.1:9000; correct it, or unset {variable}"
            )


def _emulator_address(host: str) -> str:
    """Return the address that Google's own clients use for ``STORAGE_EMULATOR_HOST``."""
    return host if "://" in host else f"http://{host}"
