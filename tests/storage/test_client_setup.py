"""What is reported when a store cannot be used at all."""

import sys

import pytest

from tests.errors import raises
from tfshards.schemas import InputError
from tfshards.schemas.storage import any_path


def test_a_store_without_an_account_is_refused(monkeypatch):
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR", "AZURITE_BLOB_STORAGE_URL"):
        monkeypatch.delenv(name, raising=False)
    with raises(InputError, "store-unusable", scheme="az", bucket="photos-without-account"):
        any_path("az://photos-without-account/x").stat()


def test_without_boto3_only_the_environment_has_credentials(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with raises(InputError, "store-unusable", scheme="s3", bucket="without-boto3"):
        any_path("s3://without-boto3/x").stat()


@pytest.mark.parametrize("secret", [None, ""])
def test_a_missing_secret_is_named(server, monkeypatch, secret):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    if secret is not None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with raises(InputError, "s3-half-credentials"):
        any_path("s3://without-secret/x").stat()


@pytest.mark.parametrize(
    ("url", "variable", "value", "shown"),
    [
        ("s3://b/x", "AWS_ENDPOINT_URL", "127.0.0.1:5791", "=127.0.0.1:5791"),
        ("s3://b/x", "AWS_ENDPOINT_URL_S3", "localhost", "=localhost"),
        ("s3://b/x", "AWS_ENDPOINT", "http://", "=http://"),
        ("s3://b/x", "AWS_ENDPOINT_URL", "http://a b", "=http://a b"),
        ("s3://b/x", "AWS_ENDPOINT_URL", "http://127.0.0.1:66000", "=http://127.0.0.1:66000"),
        ("s3://b/x", "AWS_ENDPOINT_URL", "http://user:pw@host", ""),
        ("gs://b/x", "GOOGLE_BASE_URL", "localhost:80", "=localhost:80"),
        ("gs://b/x", "STORAGE_EMULATOR_HOST", "ftp://host", "=ftp://host"),
        ("az://b/x", "AZURE_STORAGE_ENDPOINT", "localhost", "=localhost"),
    ],
)
def test_an_endpoint_that_is_not_an_address_is_named(server, monkeypatch, url, variable, value, shown):
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=f"^{variable}{shown} is not an address .*, or unset {variable}$"):
        any_path(url).stat()


def test_an_empty_endpoint_counts_as_unset(server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT", "")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "")
    with pytest.raises(FileNotFoundError):
        any_path("s3://no-such-bucket-either/x").stat()
