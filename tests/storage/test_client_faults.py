"""What the client does when a store limits, fails, hangs, or loses an answer."""

from datetime import timedelta

import pytest

from tfshards.schemas.storage import any_path, read_range, stores
from tfshards.schemas.storage.verbs import replace_if
from tfshards.schemas.storage.writing import new_file

from .faults import Answer, Cut, LoseAnswer


@pytest.fixture
def folder(bucket, proxy):
    """A folder behind the proxy, with one object and a listing of two pages."""
    root = any_path(f"{bucket.url}/data")
    (root / "x").write_bytes(b"0123456789" * 1000)
    return root


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
    replace_if(folder / "new", b"content", None, folder)
    assert (folder / "new").read_bytes() == b"content"


def test_a_lost_answer_to_the_end_of_an_upload_is_no_error(folder, proxy):
    sink = new_file(folder / "long")
    sink.write(bytes(20_000_000))
    proxy.add(LoseAnswer(), "^complete", count=1)
    sink.finish()
    assert (folder / "long").read_bytes() == bytes(20_000_000)


def test_an_abandoned_upload_leaves_no_parts(folder, proxy):
    sink = new_file(folder / "long")
    sink.write(bytes(20_000_000))
    sink.abandon()
    assert proxy.count()["abort"] == 1
