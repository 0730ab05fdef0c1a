"""What is reported for errors of a store, for connections that fail, and for stores that cannot be used."""

import socket
from datetime import timedelta

import pytest

from tfshards.schemas.storage import any_path, stores

from .faults import Answer, Cut, Hang

# the class, and a word of what to do
ANSWERS = [
    (403, "AccessDenied", PermissionError, "credentials"),
    (403, "InvalidAccessKeyId", PermissionError, "InvalidAccessKeyId"),
    (403, "SignatureDoesNotMatch", PermissionError, "SignatureDoesNotMatch"),
    (400, "ExpiredToken", PermissionError, "ExpiredToken"),
    (403, "AnUnknownCode", PermissionError, "credentials"),
    (404, "NoSuchKey", FileNotFoundError, "object"),
    (301, "", OSError, "AWS_REGION"),
    (400, "AuthorizationHeaderMalformed", OSError, "AWS_REGION"),
    (503, "SlowDown", OSError, "rate of requests"),
    (503, "", OSError, "rate of requests"),
    (429, "", OSError, "rate of requests"),
    (400, "AnUnknownCode", OSError, "AnUnknownCode"),
]


@pytest.fixture(autouse=True)
def without_retries(monkeypatch):
    """Let a client give up at once, so that the test does not wait for it."""
    monkeypatch.setattr(stores, "_RETRIES", {"max_retries": 0, "retry_timeout": timedelta(0)})
    monkeypatch.setattr(stores, "_CLIENT", {"connect_timeout": "5s", "read_timeout": "1s", "timeout": "1h"})
    monkeypatch.setattr(stores, "_UPLOADS", stores._CLIENT)


def test_an_answer_is_reported_with_what_to_do(bucket, proxy):
    for status, code, error, text in ANSWERS:
        proxy.clear()
        proxy.add(Answer(status, code), "^get")
        with pytest.raises(error, match=text) as raised:
            any_path(f"{bucket.url}/data/x").read_bytes()
        assert raised.value.filename == f"{bucket.url}/data/x"


def test_a_store_that_hangs_or_cuts_is_reported(bucket, proxy):
    path = any_path(f"{bucket.url}/data/x")
    path.write_bytes(bytes(100_000))
    proxy.add(Hang(), "^get")
    with pytest.raises(OSError, match="connection"):
        path.read_bytes()
    proxy.clear()
    proxy.add(Cut(5000), "^get")
    with pytest.raises(OSError, match="was cut while data were sent"):
        path.read_range(0, 100_000)


# the last one is an address that no connection can have
@pytest.mark.parametrize(
    "endpoint", ["closed port", "http://no-such-host.invalid", "http://255.255.255.255:9"]
)
def test_a_store_that_cannot_be_reached_is_reported(server, monkeypatch, endpoint):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    endpoint = endpoint if "://" in endpoint else f"http://127.0.0.1:{port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(OSError, match=endpoint[:12]):
        any_path("s3://bucket/x").read_bytes()
