"""List an S3 bucket by ``boto3``, where a key has a form that obstore cannot list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfshards.schemas.storage.stores import s3_client

if TYPE_CHECKING:
    from tfshards.schemas.storage.remote_path import RemotePath, RemoteStatus


def listed_after(folder: RemotePath, last: str) -> Iterator[tuple[str, RemoteStatus | None]]:
    """Yield the keys in a folder after ``last``, with what the listing says; None for keys of an odd form.

    Raises:
        OSError: the store does not allow it.
    """
    import botocore.exceptions

    from tfshards.schemas.storage.remote_path import RemoteStatus

    try:
        client = s3_client()
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=folder.bucket, Prefix=f"{folder.key}/" if folder.key else "", StartAfter=last
        )
        for page in pages:
            for each in page.get("Contents", ()):
                # as obstore, which drops the slash of a key that marks a folder
                key = each["Key"].removesuffix("/")
                if key == last:
                    continue
                modified = each["LastModified"]
                nanoseconds = int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000
                status = RemoteStatus(each["Size"], nanoseconds, each["ETag"], "")
                yield key, None if _is_odd(key) else status
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise OSError(None, f"cannot be listed: {error}", str(folder)) from None


def _is_odd(key: str) -> bool:
    parts = key.split("/")
    return bool({"", ".", ".."} & set(parts)) or any(ord(letter) < 32 or letter == "\x7f" for letter in key)
