"""What is left of an upload in parts that does not end, and how it is removed."""

from __future__ import annotations

import subprocess
import sys

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError

from .faults import LoseAnswer
from .servers import s3_client
from .test_servers import each_server

WRITE = """
import sys, time, obstore, obstore.store
file = obstore.open_writer(obstore.store.from_url(sys.argv[1]), "a b/large")
file.write(bytes(24_000_000))
print("written", flush=True)
time.sleep(60)
"""
s3_servers = pytest.mark.parametrize(
    "server", ["moto", pytest.param("s3proxy", marks=pytest.mark.nightly)], indirect=True
)


def begin_and_kill(bucket, proxy):
    """Write in a process of its own, and kill it when the store has got a part."""
    process = subprocess.Popen([sys.executable, "-c", WRITE, bucket.url], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"written\n"
        while not any(request.kind == "part" and request.status == 200 for request in proxy.requests):
            assert process.poll() is None
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def write_and_fail(store, size):
    with obstore.open_writer(store, "key") as file:
        file.write(bytes(size))
        raise ZeroDivisionError


@s3_servers
def test_a_killed_writer_leaves_an_upload_that_can_be_listed_and_aborted(bucket, proxy):
    begin_and_kill(bucket, proxy)
    assert obstore.list(bucket.store()).collect() == []
    client = s3_client(bucket.server)
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket.name, Prefix="other/")
    (upload,) = client.list_multipart_uploads(Bucket=bucket.name, Prefix="a b/")["Uploads"]
    assert upload["Key"] == "a b/large"
    client.abort_multipart_upload(Bucket=bucket.name, Key=upload["Key"], UploadId=upload["UploadId"])
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket.name)


@each_server
def test_an_exception_in_the_block_of_a_writer_leaves_no_object(bucket, proxy):
    store = bucket.store()
    for size in (1, 24_000_000):
        with pytest.raises(ZeroDivisionError):
            write_and_fail(store, size)
    assert obstore.list(store).collect() == []
    # Azure has no upload to abort: it drops the parts after a week
    assert proxy.count()["abort"] == proxy.count()["begin"] == (bucket.server.url_scheme != "az")


@each_server
def test_an_upload_that_is_not_closed_is_not_aborted(bucket, proxy):
    file = obstore.open_writer(bucket.store(), "key")
    file.write(bytes(24_000_000))
    file.flush()
    del file
    assert obstore.list(bucket.store()).collect() == []
    assert proxy.count()["abort"] == 0


@each_server
def test_a_created_object_seems_to_have_existed_if_the_answer_was_lost(bucket, proxy):
    proxy.add(LoseAnswer(), "^put", count=1)
    # obstore repeats the request: who creates must look whether the object is the own one
    with pytest.raises(AlreadyExistsError):
        obstore.put(bucket.store(), "key", b"own", mode="create")
    assert [request.kind for request in proxy.requests] == ["put", "put"]
    assert obstore.get(bucket.store(), "key").bytes() == b"own"
