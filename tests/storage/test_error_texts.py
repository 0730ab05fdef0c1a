"""What is reported for each error that a store answers, and for connections that fail."""

import errno
import socket
from datetime import timedelta

import pytest

from tfshards.schemas.storage import any_path, open_sink, read_range, stores

from .faults import Answer, Cut, CutUpload, Hang

RATE = "the store limits the rate of requests, and did so until the last attempt"
REGION = "the bucket is in another region; set AWS_REGION to it"
EXPIRED = "the credentials have expired; get new ones, and run this again"
ANSWERS = [
    (403, "AccessDenied", PermissionError, "the credentials do not allow this"),
    (403, "InvalidAccessKeyId", PermissionError, "the access key is not known; check AWS_ACCESS_KEY_ID"),
    (403, "SignatureDoesNotMatch", PermissionError, "the secret key is wrong; check AWS_SECRET_ACCESS_KEY"),
    (400, "ExpiredToken", PermissionError, EXPIRED),
    (400, "TokenRefreshRequired", PermissionError, EXPIRED),
    (403, "RequestTimeTooSkewed", PermissionError, "the clock of this machine is wrong"),
    (403, "AnUnknownCode", PermissionError, "the credentials do not allow this"),
    (404, "ContainerNotFound", FileNotFoundError, "there is no such container"),
    (404, "NoSuchKey", FileNotFoundError, "there is no such object"),
    (301, "PermanentRedirect", OSError, REGION),
    (301, "", OSError, REGION),
    (400, "AuthorizationHeaderMalformed", OSError, REGION),
    (400, "IllegalLocationConstraintException", OSError, REGION),
    (503, "SlowDown", OSError, RATE),
    (503, "ServerBusy", OSError, RATE),
    (503, "", OSError, RATE),
    (429, "", OSError, RATE),
    (400, "AnUnknownCode", OSError, "AnUnknownCode"),
]


@pytest.fixture
def without_retries(monkeypatch):
    """Let a client give up at once, so that the test does not wait for it."""
    monkeypatch.setattr(stores, "_RETRIES", {"max_retries": 0, "retry_timeout": timedelta(0)})
    monkeypatch.setattr(stores, "_CLIENT", {"connect_timeout": "5s", "read_timeout": "1s", "timeout": "1h"})
    monkeypatch.setattr(stores, "_UPLOADS", stores._CLIENT)


@pytest.mark.parametrize(("status", "code", "error", "text"), ANSWERS, ids=lambda value: str(value)[:30])
def test_an_answer_is_reported_with_what_to_do(bucket, proxy, without_retries, status, code, error, text):
    proxy.add(Answer(status, code), "^get")
    with pytest.raises(error, match=text) as raised:
        any_path(f"{bucket.url}/data/x").read_bytes()
    assert raised.value.filename == f"{bucket.url}/data/x"


def test_a_store_that_hangs_is_reported(bucket, proxy, without_retries):
    proxy.add(Hang(), "^get")
    with pytest.raises(TimeoutError, match="the store did not answer in time"):
        any_path(f"{bucket.url}/data/x").read_bytes()


def test_a_cut_answer_is_reported(bucket, proxy, without_retries):
    path = any_path(f"{bucket.url}/data/x")
    path.write_bytes(bytes(100_000))
    proxy.add(Cut(5000), "^get")
    with pytest.raises(OSError, match="the connection was cut while data were sent") as raised:
        read_range(path, 0, 100_000)
    assert raised.value.errno == errno.EIO


def test_a_cut_upload_is_reported(bucket, proxy, without_retries):
    proxy.add(CutUpload(5000), "^put")
    with pytest.raises(OSError, match="connection") as raised:
        any_path(f"{bucket.url}/data/x").write_bytes(bytes(100_000))
    assert raised.value.errno == errno.EIO


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        ("closed port", r"no server answers at the address of the store \(http://127"),
        ("http://no-such-host.invalid", r"address of the store is not known \(http://no-s"),
        # an address that no connection can have
        ("http://255.255.255.255:9", r"the store cannot be reached \(http://255"),
    ],
)
def test_a_store_that_cannot_be_reached_is_reported(server, without_retries, monkeypatch, endpoint, text):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint if "://" in endpoint else f"http://127.0.0.1:{port}")
    with pytest.raises(OSError, match=text):
        any_path("s3://bucket/x").read_bytes()


def test_google_without_credentials_is_reported(monkeypatch, without_retries, tmp_path):
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_BASE_URL", "GOOGLE_BEARER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    # the address of Google's server for the credentials of its machines
    monkeypatch.setenv("METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(OSError, match="run `gcloud auth application-default login`"):
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
