"""List an S3 bucket by ``boto3``, where a key has a form that obstore cannot list."""

from __future__ import annotations

from collections.abc import Iterator

from tfshards.schemas.storage.status import RemoteStatus
from tfshards.schemas.storage.stores import s3_client


def listed_after(bucket: str, key: str, last: str) -> Iterator[tuple[str, RemoteStatus | None]]:
    """Yield the keys in the folder ``key`` after ``last``, with their status; None for keys of an odd form.

    Raises:
        OSError: the store does not allow it.
    """
    import botocore.exceptions

    try:
        client = s3_client()
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=f"{key}/" if key else "", StartAfter=last
        )
        for page in pages:
            for each in page.get("Contents", ()):
                # as obstore, which drops the slash of a key that marks a folder
                found = each["Key"].removesuffix("/")
                if found == last:
                    continue
                modified = each["LastModified"]
                nanoseconds = int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000
                status = RemoteStatus(each["Size"], nanoseconds, each["ETag"], "")
                yield found, None if _is_odd(found) else status
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise OSError(None, f"cannot be listed: {error}", f"s3://{bucket}/{key}".rstrip("/")) from None


def _is_odd(key: str) -> bool:
    parts = key.split("/")
    return bool({"", ".", ".."} & set(parts)) or any(ord(letter) < 32 or letter == "\x7f" for letter in key)
