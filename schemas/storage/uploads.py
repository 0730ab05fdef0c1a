"""Parts of multipart uploads that killed processes left; a store keeps them, unseen, and charges for them."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from tfshards.schemas.storage.remote_path import RemotePath


def abort_uploads(folder: RemotePath, before: datetime | None = None) -> int:
    """Abort the unfinished uploads of objects in a folder, and return their number.

    Only S3 lists them, by ``boto3``. Azure drops unfinished ones after a week. For Google's store, and for S3
    besides, a rule of the bucket that aborts unfinished uploads after some days does it; see
    docs/how-to.md.

    Args:
        folder: the folder.
        before: abort only those that began before this time; by default all.

    Raises:
        OSError: the store does not allow it.
    """
    if folder.scheme != "s3":
        return 0
    import boto3
    import botocore.exceptions

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    before = before or datetime.now(timezone.utc)
    try:
        client = boto3.client("s3", endpoint_url=endpoint or os.environ.get("AWS_ENDPOINT"))
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
