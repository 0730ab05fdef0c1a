"""Serve the XML interface of Google Cloud Storage in front of fake-gcs-server.

obstore writes by the XML interface, of which fake-gcs-server has reads and deletions only: it answers
``invalid uploadType`` to every PUT. This program translates uploads, uploads in parts, copies and listings
into calls of the JSON interface, where fake-gcs-server checks the generation, and passes all else on. Only
the parts of unfinished uploads are kept here. Start it with ``python gcs_xml.py PORT ADDRESS_OF_FAKE_GCS``.
"""

import hashlib
import itertools
import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

_PAGE = 1000
_OWN = ("storage/", "upload/", "download/", "batch/", "resumable/", "_internal/")


@dataclass
class _Upload:
    """An unfinished upload in parts."""

    bucket: str
    key: str
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class _Answer:
    """The answer of fake-gcs-server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


_LOCK = threading.Lock()
_NUMBERS = itertools.count(1)
_UPLOADS: dict[str, _Upload] = {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    json_api = ""

    def handle_request(self) -> None:
        """Answer any request."""
        body = self._body()
        path, _, query_text = self.path.lstrip("/").partition("?")
        query = {name: values[0] for name, values in parse_qs(query_text, keep_blank_values=True).items()}
        bucket, _, key = path.partition("/")
        key = unquote(key)
        if path.startswith(_OWN):
            self._pass_on(body)
        elif not key and self.command == "GET":
            self._list(bucket, query)
        elif "uploads" in query or "uploadId" in query:
            self._upload_in_parts(bucket, key, query, body)
        elif self.command == "PUT" and "x-goog-copy-source" in self.headers:
            self._copy(bucket, key)
        elif self.command == "PUT":
            self._upload(bucket, key, body)
        else:
            self._pass_on(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = handle_request  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _upload(self, bucket: str, key: str, body: bytes) -> None:
        answer = self._insert(bucket, key, body)
        self._send(answer.status, b"" if answer.status == 200 else answer.body, _version(answer))

    def _insert(self, bucket: str, key: str, body: bytes) -> _Answer:
        query = {"uploadType": "media", "name": key}
        if generation := self.headers.get("x-goog-if-generation-match"):
            query["ifGenerationMatch"] = generation
        headers = {
            "Content-Type": self.headers.get("Content-Type") or "application/octet-stream",
            **{n: value for n, value in self.headers.items() if n.lower().startswith("x-goog-meta-")},
        }
        return self._ask("POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}", headers, body)

    def _copy(self, bucket: str, key: str) -> None:
        source = self.headers["x-goog-copy-source"].lstrip("/")
        found = self._ask("GET", f"/{source}", {})
        if found.status != 200:
            self._send(found.status, found.body)
            return
        answer = self._insert(bucket, key, found.body)
        self._send(
            answer.status, b"<CopyObjectResult/>" if answer.status == 200 else answer.body, _version(answer)
        )

    def _upload_in_parts(self, bucket: str, key: str, query: Mapping[str, str], body: bytes) -> None:
        name = query.get("uploadId", "")
        with _LOCK:
            if "uploads" in query:
                name = f"upload-{next(_NUMBERS)}"
                _UPLOADS[name] = _Upload(bucket, key)
            upload = _UPLOADS.get(name)
            if self.command in ("DELETE", "POST") and "uploadId" in query:
                _UPLOADS.pop(name, None)
        if upload is None:
            self._send(404, b"<Error><Code>NoSuchUpload</Code></Error>")
        elif "uploads" in query:
            content = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{name}</UploadId>"
            self._send_xml("InitiateMultipartUploadResult", content)
        elif self.command == "PUT":
            upload.parts[int(query["partNumber"])] = body
            self._send(200, b"", {"ETag": f'"{hashlib.md5(body).hexdigest()}"'})
        elif self.command == "DELETE":
            self._send(204, b"")
        else:
            answer = self._insert(bucket, key, b"".join(upload.parts[each] for each in sorted(upload.parts)))
            version = _version(answer)
            content = (
                f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><ETag>{version.get('ETag', '')}</ETag>"
            )
            self._send_xml("CompleteMultipartUploadResult", content, version)

    def _list(self, bucket: str, query: Mapping[str, str]) -> None:
        names = {"prefix": "prefix", "delimiter": "delimiter", "continuation-token": "pageToken"}
        asked = {to: query[name] for name, to in names.items() if name in query}
        asked["maxResults"] = query.get("max-keys", str(_PAGE))
        if "start-after" in query:
            # startOffset is the first key that is listed, start-after the last one that is not
            asked["startOffset"] = query["start-after"] + "\0"
        answer = self._ask("GET", f"/storage/v1/b/{bucket}/o?{urlencode(asked)}", {})
        if answer.status != 200:
            self._send(answer.status, answer.body)
            return
        found = json.loads(answer.body)
        rows = [
            f"<Contents><Key>{escape(each['name'])}</Key><Size>{each['size']}</Size>"
            f"<Generation>{each['generation']}</Generation><LastModified>{each['updated']}</LastModified>"
            f"<ETag>&quot;{each['etag']}&quot;</ETag></Contents>"
            for each in found.get("items", [])
        ]
        prefixes = found.get("prefixes", [])
        rows += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in prefixes]
        if token := found.get("nextPageToken"):
            rows.append(f"<NextContinuationToken>{escape(token)}</NextContinuationToken>")
        self._send_xml("ListBucketResult", f"<Name>{bucket}</Name>{''.join(rows)}")

    def _pass_on(self, body: bytes) -> None:
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in ("host", "connection", "content-length", "transfer-encoding")
        }
        answer = self._ask(self.command, self.path, headers, body)
        expected = self.headers.get("If-Match")
        if (
            answer.status in (200, 206)
            and expected
            and expected.strip('"') != answer.headers["ETag"].strip('"')
        ):
            self._send(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
        self._send(answer.status, answer.body, kept)

    def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> _Answer:
        address = urlsplit(self.json_api)
        connection = HTTPConnection(str(address.hostname), address.port or 80, timeout=60)
        try:
            connection.request(method, quote(path, safe="/?&=%+:,"), body or None, dict(headers))
            answer = connection.getresponse()
            # Go spells it Etag
            names = {"Etag": "ETag"}
            found = {names.get(name, name): value for name, value in answer.headers.items()}
            return _Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def _send_xml(self, root: str, content: str, headers: Mapping[str, str] | None = None) -> None:
        text = f'<?xml version="1.0" encoding="UTF-8"?><{root}>{content}</{root}>'
        self._send(200, text.encode(), {"Content-Type": "application/xml", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name in headers or {}) and status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


_HOP_BY_HOP = ("connection", "transfer-encoding", "date", "server")


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def _version(answer: _Answer) -> dict[str, str]:
    """Return the headers that name the version of an object, from the answer of the JSON interface."""
    if answer.status != 200:
        return {}
    found = json.loads(answer.body)
    return {"ETag": f'"{found["etag"]}"', "x-goog-generation": str(found["generation"])}


if __name__ == "__main__":
    _Handler.json_api = sys.argv[2]
    _Server(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
