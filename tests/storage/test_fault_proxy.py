"""Each fault of the proxy really happens, on top of a real server."""

from __future__ import annotations

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from urllib.parse import urlsplit

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import from_url

from .faults import Answer, Cut, CutUpload, Delay, Hang, LoseAnswer, Shorten, Stall
from .servers import s3_client
from .stale_listing import stale_listing
from .test_servers import each_server

ONCE = {"max_retries": 0}
BACKOFF = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5)}
RETRIES = {"max_retries": 3, "backoff": BACKOFF}
DATA = bytes(range(256)) * 2000


def open_store(bucket, retry_config=ONCE, timeout="10s"):
    # with options, obstore does not look at AWS_ALLOW_HTTP and its like
    client_options = {"timeout": timeout, "allow_http": True}
    return from_url(bucket.url, retry_config=retry_config, client_options=client_options)


@each_server
def test_requests_pass_and_are_counted(bucket, proxy):
    store = open_store(bucket)
    obstore.put(store, "a b/ü", DATA)
    assert obstore.get(store, "a b/ü").bytes() == DATA
    obstore.get_range(store, "a b/ü", start=0, length=100)
    obstore.head(store, "a b/ü")
    obstore.list(store).collect()
    obstore.copy(store, "a b/ü", "copy")
    obstore.put(store, "large", b"x" * 12_000_000, use_multipart=True, chunk_size=5 << 20)
    obstore.delete(store, "copy")
    found = proxy.count()
    assert found.pop("begin", 0) == (bucket.server.url_scheme != "az")
    expected = {"put": 1, "get": 2, "head": 1, "list": 1, "copy": 1, "part": 3, "complete": 1, "delete": 1}
    assert found == expected
    sizes = {
        request.kind: (request.sent, request.received) for request in proxy.requests if request.kind != "part"
    }
    assert sizes["put"][0] == len(DATA)
    assert sizes["get"][1] == 100
    assert sum(request.sent for request in proxy.requests if request.kind == "part") == 12_000_000


def test_a_client_of_boto3_passes(bucket, proxy):
    client = s3_client(bucket.server.behind(proxy.endpoint))
    client.put_object(Bucket=bucket.name, Key="key", Body=DATA)
    assert client.get_object(Bucket=bucket.name, Key="key")["Body"].read() == DATA
    assert proxy.count() == {"put": 1, "get": 1}


def test_delays_do_not_wait_for_each_other(bucket, proxy):
    store = open_store(bucket)
    obstore.put(store, "key", b"1")
    proxy.add(Delay(0.4), "^get")
    start = time.monotonic()
    with ThreadPoolExecutor(64) as threads:
        list(threads.map(lambda _: obstore.get(store, "key").bytes(), range(64)))
    assert 0.4 <= time.monotonic() - start < 4
    assert proxy.most_in_flight == 64


def test_the_next_requests_are_answered_with_an_error(bucket, proxy):
    store = open_store(bucket, RETRIES)
    proxy.add(Answer(503, "SlowDown"), r"^put .*/key$", count=2)
    obstore.put(store, "other", b"1")
    obstore.put(store, "key", b"1")
    assert [(each.status, each.sent) for each in proxy.requests] == [(200, 1), (503, 1), (503, 1), (200, 1)]


def test_a_share_of_the_requests_is_answered_with_an_error(bucket, proxy):
    def statuses():
        proxy.clear()
        proxy.add(Answer(500), rate=0.3, seed=5)
        for index in range(40):
            with suppress(GenericError):
                obstore.put(store, str(index), b"1")
        return [each.status for each in proxy.requests]

    store = open_store(bucket)
    first = statuses()
    assert 4 <= first.count(500) <= 20
    assert first.count(200) == 40 - first.count(500)
    assert statuses() == first


@pytest.mark.parametrize("fault", [Cut(1000), Cut(1000, reset=False)], ids=["reset", "closed"])
def test_an_answer_is_cut(bucket, proxy, fault):
    store = open_store(bucket)
    obstore.put(store, "key", DATA)
    url = urlsplit(obstore.sign(store, "GET", "key", timedelta(minutes=1)))
    proxy.add(fault, "^get", count=1)
    received = b""
    with socket.create_connection((url.hostname, url.port)) as client:
        client.sendall(f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
        try:
            while block := client.recv(1 << 16):
                received += block
            was_reset = False
        except ConnectionResetError:
            was_reset = True
    head, _, body = received.partition(b"\r\n\r\n")
    assert f"content-length: {len(DATA)}" in head.decode().lower()
    assert (body, was_reset) == (DATA[:1000], fault.reset)


def test_an_answer_is_shorter_than_the_object(bucket, proxy):
    store = open_store(bucket)
    obstore.put(store, "key", DATA)
    proxy.add(Shorten(1000), "^get", count=1)
    # no error: the size of the object must be compared with what arrives
    assert obstore.get(store, "key").bytes() == DATA[:1000]
    assert obstore.get(store, "key").bytes() == DATA


@pytest.mark.parametrize("fault", [Hang(), Stall(1000)])
def test_a_request_hangs_until_the_client_gives_up(bucket, proxy, fault):
    obstore.put(open_store(bucket), "key", DATA)
    proxy.add(fault, "^get")
    store = open_store(bucket, timeout="300ms")
    start = time.monotonic()
    with pytest.raises(GenericError, match=r"(?i)time"):
        obstore.get(store, "key").bytes()
    assert 0.25 < time.monotonic() - start < 5


def test_an_upload_is_cut(bucket, proxy):
    store = open_store(bucket)
    proxy.add(CutUpload(1000), "^put", count=1)
    with pytest.raises(GenericError):
        obstore.put(store, "key", DATA)
    assert (proxy.requests[0].sent, proxy.requests[0].status) == (1000, 0)
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "key")


def test_an_answer_is_lost_after_the_store_has_the_object(bucket, proxy):
    store = open_store(bucket)
    proxy.add(LoseAnswer(), "^put", count=1)
    with pytest.raises(GenericError):
        obstore.put(store, "key", DATA)
    assert obstore.get(store, "key").bytes() == DATA


@pytest.mark.parametrize("server", ["moto", "fake-gcs"], indirect=True)
def test_a_listing_is_of_an_earlier_time(bucket, proxy):
    store = open_store(bucket)
    for key in ("a/1", "a/b/2", "c d/ü"):
        obstore.put(store, key, key.encode())
    before = obstore.list(store).collect()
    proxy.listing = stale_listing(store, bucket.name)
    obstore.put(store, "a/new", b"")
    obstore.put(store, "a/1", b"longer than before")
    obstore.delete(store, "c d/ü")
    strip = [re.sub(r"\.\d+", "", str(each["last_modified"])) for each in before]
    stale = obstore.list(store).collect()
    assert [(each["path"], each["size"], each["e_tag"]) for each in stale] == [
        (each["path"], each["size"], each["e_tag"]) for each in before
    ]
    assert [str(each["last_modified"]) for each in stale] == strip
    folder = obstore.list_with_delimiter(store, "a")
    assert ([each["path"] for each in folder["objects"]], folder["common_prefixes"]) == (["a/1"], ["a/b"])
    proxy.clear()
    assert [each["path"] for each in obstore.list(store).collect()] == ["a/1", "a/b/2", "a/new"]
