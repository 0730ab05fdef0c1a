import os
import threading

import pytest

from tfshards.schemas.files import sync_directory, write_atomically


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_and_overwritten(tmp_path):
    path = tmp_path / "file"
    for data in (b"one", b"another", b""):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert names(tmp_path) == ["file"]


def test_first_the_content_and_then_the_name_is_synced(tmp_path, monkeypatch):
    path, seen = tmp_path / "file", []

    def fsync(descriptor):
        target = os.readlink(f"/proc/self/fd/{descriptor}")
        seen.append((os.path.basename(target).endswith(".tmp"), target == str(tmp_path), path.exists()))
        if seen[-1][0]:
            assert os.path.getsize(target) == 4

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(path, b"data")
    # the temporary file while the new name does not exist, the folder when it does
    assert seen == [(True, False, False), (False, True, True)]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_only_the_old_file(tmp_path, monkeypatch, error):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        write_atomically(path, b"new")
    assert names(tmp_path) == ["file"]
    assert path.read_bytes() == b"old"


def test_a_folder_at_the_path_stays_and_no_other_file_is_left(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "file", b"new")
    assert names(tmp_path) == ["file"]
    assert names(tmp_path / "file") == []


def test_threads_that_write_one_path_do_not_mix(tmp_path, monkeypatch):
    path, meet, failed = tmp_path / "file", threading.Barrier(2, timeout=10), []
    fsync = os.fsync

    def together(descriptor):
        # both temporary files exist before either is renamed
        if not os.path.isdir(f"/proc/self/fd/{descriptor}"):
            meet.wait()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", together)

    def write(data):
        try:
            write_atomically(path, data)
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
    assert names(tmp_path) == ["file"]


def test_syncing_a_folder_always_closes_it(tmp_path, monkeypatch):
    closed, close = [], os.close
    monkeypatch.setattr(os, "fsync", lambda descriptor: os.fstat(-1))
    monkeypatch.setattr(os, "close", lambda descriptor: (closed.append(descriptor), close(descriptor)))
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync_directory(tmp_path)
    assert len(closed) == 1
