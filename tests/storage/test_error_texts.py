"""What is reported for errors that a store answers, and for connections that fail."""

import errno
import socket
from datetime import timedelta

import pytest

from tfshards.schemas.storage import any_path, open_sink, read_range, stores

from .faults import Answer, Cut, CutUpload, Hang

# the class, and a word of what to do
ANSWERS = [
    (403, "AccessDenied", PermissionError, "credentials"),
    (403, "InvalidAccessKeyId", PermissionError, "AWS_ACCESS_KEY_ID"),
    (403, "SignatureDoesNotMatch", PermissionError, "AWS_SECRET_ACCESS_KEY"),
    (400, "ExpiredToken", PermissionError, "expired"),
    (400, "TokenRefreshRequired", PermissionError, "expired"),
    (403, "RequestTimeTooSkewed", PermissionError, "clock"),
    (403, "AnUnknownCode", PermissionError, "credentials"),
    (404, "ContainerNotFound", FileNotFoundError, "container"),
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
    with pytest.raises(TimeoutError):
        path.read_bytes()
    proxy.clear()
    proxy.add(Cut(5000), "^get")
    with pytest.raises(OSError, match="connection") as raised:
        read_range(path, 0, 100_000)
    assert raised.value.errno == errno.EIO
    proxy.add(CutUpload(5000), "^put")
    with pytest.raises(OSError, match="connection") as raised:
        path.write_bytes(bytes(100_000))
    assert raised.value.errno == errno.EIO


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


def test_google_without_credentials_is_reported(monkeypatch, tmp_path):
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_BASE_URL", "GOOGLE_BEARER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    # the address of Google's server for the credentials of its machines
    monkeypatch.setenv("METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(OSError, match="gcloud auth application-default login"):
        any_path("gs://bucket-without-credentials/x").read_bytes()


def test_an_older_object_of_equal_size_is_not_what_was_written(bucket, proxy):
    path = any_path(f"{bucket.url}/data/long")
    path.write_bytes(b"x" * 10_000_000)
    sink = open_sink(path)
    sink.write(bytes(10_000_000))
    proxy.add(Answer(404, "NoSuchUpload"), "^complete")
    with pytest.raises(FileNotFoundError):
        sink.finish()
    assert path.read_bytes() == b"x" * 10_000_000
