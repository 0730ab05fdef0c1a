"""Listings that an object store answered at an earlier time, for the proxy in faults.py."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import obstore
from obstore.store import ObjectStore


def stale_listing(store: ObjectStore, bucket: str) -> Callable[[str], bytes | None]:
    """Return a function, for ``FaultProxy.listing``, that answers listings of a bucket as they are now.

    Args:
        store: the whole bucket, as one sees it without the proxy.
        bucket: the name of the bucket, of S3 or Google; the listings of others are not stale.
    """
    objects = [each for chunk in obstore.list(store) for each in chunk]
    objects.sort(key=lambda each: each["path"].encode())

    def answer(target: str) -> bytes | None:
        url = urlsplit(target)
        if url.path.strip("/").replace("%2D", "-") != bucket:
            return None
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        prefix, after = query.get("prefix", ""), query.get("start-after", "")
        delimiter = query.get("delimiter")
        rows = []
        folders = {}
        for each in objects:
            key = each["path"]
            if not key.startswith(prefix) or key.encode() <= after.encode():
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders[prefix + rest.split(delimiter)[0] + delimiter] = None
                continue
            rows.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{each['size']}</Size>"
                f"<LastModified>{each['last_modified']:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
                f"<ETag>{escape(each['e_tag'] or '')}</ETag></Contents>"
            )
        rows += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders]
        return (
            f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>{bucket}</Name>'
            f"<IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>"
        ).encode()

    return answer
