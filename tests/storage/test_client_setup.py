"""What is reported when a store cannot be used at all."""

import sys

import pytest

from tfshards.schemas import InputError
from tfshards.schemas.files import file_sizes, is_locked
from tfshards.schemas.storage import any_path
from tfshards.schemas.storage.faults import repeated


def test_a_store_without_an_account_is_refused(monkeypatch):
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR", "AZURITE_BLOB_STORAGE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match=r"^az://photos-without-account: Azure Blob Storage cannot be used"):
        any_path("az://photos-without-account/x").stat()


def test_without_boto3_only_the_environment_has_credentials(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(InputError, match=r"^s3://without-boto3: Amazon S3 cannot be used: .*AccessKeyId"):
        any_path("s3://without-boto3/x").stat()


def test_a_missing_bucket_has_no_sizes_and_no_lock(server, tmp_path):
    found = file_sizes(any_path("s3://no-such-bucket/x"), ["a", "b/c"])
    assert all(isinstance(error, FileNotFoundError) for error in found.values())
    assert not is_locked(any_path("s3://no-such-bucket/x"))
    assert not is_locked(tmp_path / "missing")


def test_an_error_that_repeating_does_not_mend_is_raised_at_once():
    calls = []

    def call() -> None:
        calls.append(1)
        raise PermissionError(13, "denied")

    with pytest.raises(PermissionError):
        repeated(call)
    assert calls == [1]
