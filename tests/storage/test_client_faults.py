"""What the client does when a store limits, fails, hangs, or loses an answer."""

from datetime import timedelta

import pytest

from tfshards.schemas.storage import any_path, open_sink, read_range, stores
from tfshards.schemas.storage.reader import NUM_REQUESTS, in_background

from .faults import Answer, Cut, Delay, LoseAnswer


@pytest.fixture
def folder(bucket, proxy):
    """A folder behind the proxy, with one object and a listing of two pages."""
    root = any_path(f"{bucket.url}/data")
    (root / "x").write_bytes(b"0123456789" * 1000)
    return root


def test_a_store_that_limits_requests_is_asked_again(folder, proxy):
    proxy.add(Answer(503, "SlowDown"), "^get", count=3)
    assert read_range(folder / "x", 0, 10) == b"0123456789"
    assert proxy.count()["get"] == 4


def test_many_errors_in_a_minute_do_not_end_a_run(folder, proxy, monkeypatch):
    backoff = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5), "base": 4}
    monkeypatch.setitem(stores._RETRIES, "backoff", backoff)
    stores._store.cache_clear()
    proxy.add(Answer(500), "^get", count=25)
    assert read_range(folder / "x", 0, 10) == b"0123456789"
    stores._store.cache_clear()


def test_a_store_that_has_never_answered_may_have_a_wrong_address(folder, proxy, monkeypatch):
    monkeypatch.setitem(stores._FIRST_RETRIES, "retry_timeout", timedelta(0))
    stores._store.cache_clear()
    stores._answered.clear()
    proxy.add(Answer(503, "SlowDown"), "^get", count=2)
    with pytest.raises(OSError, match="the store limits the rate"):
        read_range(folder / "x", 0, 10)
    assert not (folder / "y").exists()
    assert read_range(folder / "x", 0, 10) == b"0123456789"
    assert proxy.count()["get"] == 3
    stores._store.cache_clear()


def test_a_cut_answer_is_read_again(folder, proxy):
    proxy.add(Cut(5000), "^get", count=2)
    assert (folder / "x").read_bytes() == b"0123456789" * 1000


def test_a_cut_listing_is_repeated(folder, proxy):
    for look in (lambda: list(folder.iterdir()), lambda: [path for path, _ in folder.walk()]):
        proxy.add(Cut(50), "^list", count=2)
        assert look() == [folder / "x"]


def test_a_lost_answer_to_a_conditional_write_is_no_conflict(folder, proxy):
    proxy.add(LoseAnswer(), "^put", count=1)
    (folder / "new").write_if(b"content", None)
    assert (folder / "new").read_bytes() == b"content"


def test_a_lost_answer_to_the_end_of_an_upload_is_no_error(folder, proxy):
    sink = open_sink(folder / "long")
    sink.write(bytes(20_000_000))
    proxy.add(LoseAnswer(), "^complete", count=1)
    sink.finish()
    assert (folder / "long").read_bytes() == bytes(20_000_000)


def test_an_abandoned_upload_leaves_no_parts(folder, proxy):
    sink = open_sink(folder / "long")
    sink.write(bytes(20_000_000))
    sink.abandon()
    assert proxy.count()["abort"] == 1


def test_of_many_reads_all_are_in_flight(folder, proxy):
    proxy.add(Delay(0.3), "^get")
    requests = [in_background(read_range, folder / "x", at, at + 10) for at in range(NUM_REQUESTS)]
    assert [len(request.result()) for request in requests] == [10] * NUM_REQUESTS
    assert proxy.most_in_flight == NUM_REQUESTS
