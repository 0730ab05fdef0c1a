"""Classify the requests that an object store receives."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit


@dataclass
class Request:
    """A request that the proxy has received; the numbers change until it has been answered.

    Attributes:
        kind: ``get``, ``head``, ``list``, ``put``, ``copy``, ``delete``; of uploads in parts, ``begin``,
            ``part``, ``complete``, ``abort`` and ``uploads`` (their listing); ``other``.
        sent: bytes of the body of the request.
        received: bytes of the body of the answer that were passed on.
        status: status of the answer; 0 if the client got none.
        fault: the fault that happened to it, if any.
    """

    kind: str
    method: str
    target: str
    sent: int = 0
    received: int = 0
    status: int = 0
    fault: object = None

    def __str__(self) -> str:
        return f"{self.kind} {self.method} {self.target}"


def kind_of(method: str, target: str, headers: Mapping[str, str]) -> str:
    """Return what a request of S3, of Google's XML or JSON interface, or of Azure does.

    The names of the headers are in lower case.
    """
    url = urlsplit(target)
    query = parse_qs(url.query, keep_blank_values=True)
    component = query.get("comp", [""])[0]
    is_copy = any(name in headers for name in ("x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source"))
    in_parts = "uploads" in query or "uploadId" in query
    # fmt: off
    table = [
        ("list", method == "GET" and ("list-type" in query or component == "list")),
        ("list", method == "GET" and bool(re.fullmatch(r"/storage/v1/b/[^/]+/o/?", url.path))),
        ("uploads", method == "GET" and "uploads" in query),
        ("begin", method == "POST" and "uploads" in query),
        ("complete", (method == "POST" and in_parts) or component == "blocklist"),
        ("abort", method == "DELETE" and in_parts),
        ("part", method == "PUT" and ("partNumber" in query or component == "block")),
        ("copy", method == "PUT" and is_copy),
        ("delete", method == "DELETE" or (method == "POST" and ("delete" in query or component == "batch"))),
        ("get", method == "GET"),
        ("head", method == "HEAD"),
        ("put", method == "PUT"),
    ]
    # fmt: on
    return next((kind for kind, matches in table if matches), "other")
