"""The folder of blocks when what it expects is not there."""

import pytest

from tfshards.loader.fetching import folder as block_folder
from tfshards.loader.fetching.folder import BlockFolder


def test_a_folder_of_another_pipeline_that_ends_meanwhile_is_left_alone(tmp_path):
    gone = tmp_path / "split" / "gone"
    assert not block_folder._is_locked(gone)
    assert block_folder._wanted_by(gone) == 0
    assert block_folder._size_of(gone) == 0
    own = BlockFolder(tmp_path, "split", 1000, 1000)
    own._take_over(gone)
    assert own.found == {}
    other = BlockFolder(tmp_path, "split", 1000, 1000)
    own._take_over(other.path)
    assert other.path.is_dir()
    assert block_folder._is_locked(other.path)
    own.close(set())
    other.close(set())


def test_a_block_of_another_size_is_not_linked_and_a_failed_write_leaves_nothing(tmp_path):
    own, other = (BlockFolder(tmp_path, "split", None, 1000) for _ in range(2))
    other.write("shard@0-3", b"abc")
    assert not own.link("shard@0-3", 4)
    with pytest.raises(OSError, match="No such file"):
        own.write("missing/shard@0-3", b"abc")
    with pytest.raises(TypeError):
        own.write("shard@3-6", "text")
    assert not list(own.path.glob("*.tmp"))
    own.close(set())
    other.close(set())
