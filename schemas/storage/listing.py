"""What a store knows about an object, and listings of S3 by boto3, where obstore cannot list a key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

from tfshards.schemas.storage.stores import s3_client


class RemoteStatus(NamedTuple):
    """What a store knows about an object; many stores know the time of writing in whole seconds only."""

    st_size: int
    st_mtime_ns: int
    e_tag: str
    version: str


def status_of(meta: Any) -> RemoteStatus:  # noqa: ANN401 -- obstore's ObjectMeta, a dict
    """Return the status in the form that obstore has."""
    return _status(meta["size"], meta["last_modified"], meta["e_tag"] or "", meta["version"] or "")


def _status(size: int, modified: datetime, e_tag: str, version: str = "") -> RemoteStatus:
    nanoseconds = int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000
    # Azure's listings leave out the quotation marks, without which no condition matches.
    quoted = f'"{e_tag}"' if e_tag and '"' not in e_tag else e_tag
    return RemoteStatus(size, nanoseconds, quoted, version)


def listed_after(bucket: str, key: str, last: str) -> Iterator[tuple[str, RemoteStatus | None]]:
    """Yield the keys in the folder ``key`` after ``last`` with their status, or None if they are odd."""
    with s3_errors("cannot be listed", f"s3://{bucket}/{key}".rstrip("/")):
        pages = (
            s3_client()
            .get_paginator("list_objects_v2")
            .paginate(Bucket=bucket, Prefix=f"{key}/" if key else "", StartAfter=last)
        )
        for page in pages:
            for each in page.get("Contents", ()):
                # as obstore, which drops the slash of a key that marks a folder
                found = each["Key"].removesuffix("/")
                if found != last:
                    status = _status(each["Size"], each["LastModified"], each["ETag"])
                    yield found, None if _is_odd(found) else status


@contextmanager
def s3_errors(fault: str, url: str) -> Iterator[None]:
    """Raise the errors of boto3 as OSError."""
    import botocore.exceptions

    try:
        yield
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise OSError(None, f"{fault}: {error}", url) from None


def _is_odd(key: str) -> bool:
    parts = key.split("/")
    return bool({"", ".", ".."} & set(parts)) or any(ord(letter) < 32 or letter == "\x7f" for letter in key)
