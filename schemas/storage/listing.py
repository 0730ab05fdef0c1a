"""What a store knows about an object, and what only S3 can do, by boto3: odd keys and unfinished uploads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from tfshards.schemas.storage.stores import s3_client


class RemoteStatus(NamedTuple):
    """What a store knows about an object; many stores know the time of writing in whole seconds only."""

    st_size: int
    st_mtime_ns: int
    e_tag: str
    version: str


Status: TypeAlias = "RemoteStatus | os.stat_result"


def status_of(meta: Any) -> RemoteStatus:  # noqa: ANN401 -- obstore's ObjectMeta, a dict
    """Return the status in the form that obstore has."""
    return _status(meta["size"], meta["last_modified"], meta["e_tag"] or "", meta["version"] or "")


def _status(size: int, modified: datetime, e_tag: str, version: str = "") -> RemoteStatus:
    nanoseconds = int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000
    # Azure's listings leave out the quotation marks, without which no condition matches.
    quoted = f'"{e_tag}"' if e_tag and '"' not in e_tag else e_tag
    return RemoteStatus(size, nanoseconds, quoted, version)


def stamp_of(status: Status) -> int:
    """Return a number that changes with a file: its time, or of an object's ETag, which copies share."""
    if not isinstance(status, RemoteStatus) or not status.e_tag:
        return status.st_mtime_ns
    return int.from_bytes(hashlib.blake2b(status.e_tag.encode(), digest_size=8).digest(), "little") >> 1


def listed_after(bucket: str, key: str, last: str) -> Iterator[tuple[str, RemoteStatus | None]]:
    """Yield the keys in the folder ``key`` after ``last`` with their status, or None if they are odd."""
    with _s3_client(bucket, key) as client:
        pages = client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=bucket, Prefix=f"{key}/" if key else "", StartAfter=last):
            for each in page.get("Contents", ()):
                # as obstore, which drops the slash of a key that marks a folder
                found = each["Key"].removesuffix("/")
                if found != last:
                    status = _status(each["Size"], each["LastModified"], each["ETag"])
                    yield found, None if _is_odd(found) else status


def abort_uploads(bucket: str, key: str) -> None:
    """Abort the unfinished uploads of objects in the folder ``key`` of a bucket of S3."""
    with _s3_client(bucket, key) as client:
        pages = client.get_paginator("list_multipart_uploads")
        for page in pages.paginate(Bucket=bucket, Prefix=f"{key}/" if key else ""):
            for each in page.get("Uploads", ()):
                client.abort_multipart_upload(Bucket=bucket, Key=each["Key"], UploadId=each["UploadId"])


@contextmanager
def _s3_client(bucket: str, key: str) -> Iterator[Any]:
    """Yield a client of boto3, whose errors become OSError."""
    import botocore.exceptions

    try:
        yield s3_client()
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise OSError(None, f"cannot be listed: {error}", f"s3://{bucket}/{key}".rstrip("/")) from None


def _is_odd(key: str) -> bool:
    parts = key.split("/")
    return bool({"", ".", ".."} & set(parts)) or any(ord(letter) < 32 or letter == "\x7f" for letter in key)
