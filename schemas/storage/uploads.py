"""Parts of multipart uploads that killed processes left; a store keeps them, unseen, and charges for them."""

from __future__ import annotations

from datetime import datetime, timezone

from tfshards.schemas.storage.remote_path import RemotePath
from tfshards.schemas.storage.stores import s3_client


def abort_uploads(folder: RemotePath, before: datetime | None = None) -> int:
    """Abort the unfinished uploads of objects in a folder, and return their number.

    Only S3 lists them. Azure removes unfinished uploads after a week. In Google's store, and also in S3, a
    lifecycle rule of the bucket can abort them after some days; see docs/storage.md.

    Args:
        folder: the folder.
        before: abort only those that began before this time; by default all.

    Raises:
        OSError: the store does not allow it.
    """
    if folder.scheme != "s3":
        return 0
    import botocore.exceptions

    before = before or datetime.now(timezone.utc)
    try:
        client = s3_client()
        pages = client.get_paginator("list_multipart_uploads").paginate(
            Bucket=folder.bucket, Prefix=f"{folder.key}/" if folder.key else ""
        )
        found = [
            upload for page in pages for upload in page.get("Uploads", ()) if upload["Initiated"] <= before
        ]
        for upload in found:
            client.abort_multipart_upload(
                Bucket=folder.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise OSError(None, f"unfinished uploads cannot be removed: {error}", str(folder)) from None
    return len(found)
