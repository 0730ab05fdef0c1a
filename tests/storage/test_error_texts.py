"""What is reported for errors of a store, for connections that fail, and for stores that cannot be used."""

import socket
import sys
from datetime import timedelta

import pytest

from tests.errors import raises
from tfshards.schemas import InputError
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


def test_google_without_credentials_is_reported(monkeypatch, tmp_path):
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_BASE_URL", "GOOGLE_BEARER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    # the address of Google's server for the credentials of its machines
    monkeypatch.setenv("METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(OSError, match="gcloud auth application-default login"):
        any_path("gs://bucket-without-credentials/x").read_bytes()


# the URL, and what is unset or set in the environment
ACCOUNT = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR", "AZURITE_BLOB_STORAGE_URL")
UNUSABLE = [
    ("az://photos-without-account/x", dict.fromkeys(ACCOUNT), "cannot be used"),
    ("s3://without-secret/x", {"AWS_SECRET_ACCESS_KEY": None}, "AWS_SECRET_ACCESS_KEY"),
    ("s3://without-secret/x", {"AWS_SECRET_ACCESS_KEY": ""}, "AWS_SECRET_ACCESS_KEY"),
    # without boto3 only the environment has credentials
    ("s3://without-boto3/x", {"AWS_ACCESS_KEY_ID": None, "boto3": None}, "cannot be used"),
]


@pytest.mark.parametrize(("url", "changes", "code"), UNUSABLE)
def test_a_store_without_an_account_or_credentials_is_refused(server, monkeypatch, url, changes, code):
    for name, value in changes.items():
        if name == "boto3":
            monkeypatch.setitem(sys.modules, name, None)
        elif value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    with raises(InputError, code):
        any_path(url).stat()


@pytest.mark.parametrize(
    ("url", "variable", "value"),
    [
        ("s3://b/x", "AWS_ENDPOINT_URL", "127.0.0.1:5791"),
        ("s3://b/x", "AWS_ENDPOINT", "http://"),
        ("s3://b/x", "AWS_ENDPOINT", ""),
        ("s3://b/x", "AWS_ENDPOINT_URL", "http://user:pw@host"),
        ("gs://b/x", "STORAGE_EMULATOR_HOST", "ftp://host"),
        ("az://b/x", "AZURE_STORAGE_ENDPOINT", "localhost"),
    ],
)
def test_an_endpoint_that_is_not_an_address_is_named(server, monkeypatch, url, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=f"^{variable} is not an address .*, or unset {variable}$"):
        any_path(url).stat()
