"""Files that are written whole or not at all; tests/crash judges what a crash leaves of them."""

import os
import threading

import pytest

from tfshards.schemas.storage import any_path


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_only_the_old_file(tmp_path, monkeypatch, error):
    path = any_path(tmp_path / "file")
    path.put(b"old")

    def fail(descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        path.put(b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_threads_that_write_one_path_do_not_mix(tmp_path, monkeypatch):
    path, meet, failed = any_path(tmp_path / "file"), threading.Barrier(2, timeout=10), []
    fsync = os.fsync

    def together(descriptor):
        # both temporary files exist before either is renamed
        if not os.path.isdir(f"/proc/self/fd/{descriptor}"):
            meet.wait()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", together)

    def write(data):
        try:
            path.put(data)
        except Exception as error:
            failed.append(error)

    texts = [b"a" * 100_000, b"b" * 50_000]
    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert path.read_bytes() in texts
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
