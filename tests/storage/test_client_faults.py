"""What the client does when a store limits, fails, hangs, or loses an answer."""

import pytest

from tfshards.schemas.storage import any_path

from .faults import Cut, LoseAnswer


@pytest.fixture
def folder(bucket, proxy):
    """A folder behind the proxy, with one object."""
    root = any_path(f"{bucket.url}/data")
    (root / "x").write_bytes(b"0123456789" * 1000)
    return root


def test_a_cut_answer_is_read_again(folder, proxy):
    proxy.add(Cut(5000), "^get", count=2)
    assert (folder / "x").read_bytes() == b"0123456789" * 1000


def test_a_lost_answer_to_a_conditional_write_is_no_conflict(folder, proxy):
    proxy.add(LoseAnswer(), "^put", count=1)
    (folder / "new").replace_if(b"content", None, folder)
    assert (folder / "new").read_bytes() == b"content"


def test_an_abandoned_upload_leaves_no_parts(folder, proxy):
    sink = (folder / "long").new_file()
    sink.write(bytes(20_000_000))
    sink.abandon()
    assert proxy.count()["abort"] == 1
