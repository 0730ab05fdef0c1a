"""Arrays as a source: files that change, memory and disks that are too small.

tests/conformance/test_arrays.py has what each array becomes, and which files are refused.
"""

import os
import tracemalloc
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tests.pictures import image_file
from tfshards import prep
from tfshards.prep import Arrays, append
from tfshards.schemas import InputError, read_manifest


@pytest.fixture
def stage(tmp_path):
    """Return a function from a source to its reader, staged in an empty folder."""
    numbers = iter(range(100))

    def run(source: Arrays, **options):
        folder = tmp_path / f"staged-{next(numbers)}"
        folder.mkdir()
        return source.stage(folder, **options)

    return run


def copies(tmp_path):
    """Return the sizes of the copied arrays."""
    return [path.stat().st_size for path in tmp_path.glob("staged*/*") if path.suffix != ".arrow"]


@pytest.fixture
def archive(tmp_path):
    """An .npz with one member of 40 MB of zeros, which is compressed."""
    np.savez_compressed(tmp_path / "all.npz", x=np.zeros((40, 2**20), np.uint8))
    return tmp_path / "all.npz"


def test_a_file_with_other_values_is_not_up_to_date(tmp_path, quiet_build):
    for added in (0, 1):
        np.save(tmp_path / f"{added}.npy", np.arange(6.0) + added)
    quiet_build(Arrays({"x": tmp_path / "0.npy"}), tmp_path / "out")
    os.replace(tmp_path / "1.npy", tmp_path / "0.npy")
    with raises(InputError, "holds a dataset with", code="dataset-differs"):
        quiet_build(Arrays({"x": tmp_path / "0.npy"}), tmp_path / "out")


@contextmanager
def peak_below(num_bytes):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < num_bytes
    finally:
        tracemalloc.stop()


Row = namedtuple("Row", "key label size stamp")


def rows_of(listing, numbers):
    return [*map(Row._make, zip(*listing.fields_of(np.array(numbers)), strict=True))]


def test_files_are_mapped_rather_than_copied_and_members_unpacked_in_little_memory(archive, tmp_path, stage):
    np.save(tmp_path / "x.npy", np.zeros((3_000, 500), np.float32))
    with peak_below(1_000_000):
        reader = stage(Arrays({"x": tmp_path / "x.npy"}))
        listing = reader.listing()
        (last,) = reader.read(rows_of(listing, [2_999]), listing.schema)
    assert (len(last.values[0]), copies(tmp_path)) == (2_000, [])
    with peak_below(8 << 20):
        stage(Arrays([str(archive)]))
    assert [size >> 20 for size in copies(tmp_path)] == [40]


def test_a_file_that_changes_or_vanishes_during_reading_ends_it(tmp_path, stage):
    paths = {name: tmp_path / f"{name}.npy" for name in ("x_train", "x_test", "y_train", "y_test")}
    for path in paths.values():
        np.save(path, np.array([[2.5], [1.5]]))
    reader = stage(Arrays(paths))
    listing = reader.listing()
    rows = rows_of(listing, range(4))
    assert [*reader.read(rows, listing.schema)][2].values[0] == np.float64(2.5).tobytes()
    os.utime(paths["x_test"], ns=(1, 1))
    assert [*reader.read(rows[:2], listing.schema)]
    for change, text in (
        (lambda: None, "changed after the build listed it"),
        (lambda: np.save(paths["x_test"], np.arange(1)), "changed after the build listed it"),
        (paths["x_test"].unlink, "cannot be read"),
    ):
        change()
        with raises(InputError, text):
            [*reader.read(rows, listing.schema)]


def test_append_reads_the_splits_and_roles_of_the_build(tmp_path, array_files, quiet_build):
    arrays = {f"{name}_{split}": np.arange(12) % 3 for name in ("x", "y") for split in ("train", "test")}
    files = array_files(**arrays)
    out = tmp_path / "out"
    quiet_build(Arrays(files, {"x": "label", "y": "list"}), out)
    more = {n: np.concatenate([array, array[:1]]) if "test" in n else array for n, array in arrays.items()}
    grown = append(array_files(**more), out)
    assert {name: split.num_examples for name, split in grown.splits.items()} == {"train": 12, "test": 13}
    assert (grown.schema["x"].kind, grown.schema["y"].kind) == ("label", "int")


# ``prep.Examples``: datasets from iterables of other packages, and what is done with them later


Values = dict[str, object]


COUNT = 9


def encoded(number: int) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (5 + number % 3, 9, 3), dtype=np.uint8)
    return image_file(pixels)


def example(number: int) -> Values:
    return {"image": encoded(number), "label": ("cat", "dog")[number % 2], "n": number, "x": number / 4}


@pytest.fixture
def build(tmp_path, quiet_build):
    """Build a dataset from examples in the folder ``name``, and return the folder."""

    def run(source: prep.Examples, name: str = "out", **given: object) -> Path:
        quiet_build(source, tmp_path / name, **given)
        return tmp_path / name

    return run


def test_a_million_examples_would_fit_since_values_wait_on_disk(tmp_path):
    alive, most = 0, 0

    class Counted(dict):
        def __init__(self, number: int) -> None:
            nonlocal alive, most
            super().__init__(n=number)
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    (tmp_path / "staged").mkdir()
    reader = prep.Examples(map(Counted, range(2_000))).stage(tmp_path / "staged")
    assert reader.listing().num_examples == 2_000
    assert most < 10


def test_a_build_and_append_take_the_examples_again(build, tmp_path):
    given = [*map(example, range(COUNT))]
    out = build(prep.Examples(given), shards=3)
    shard = out / read_manifest(out).shards[1].path
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    assert not prep.verify(out, repair=True)
    build(prep.Examples(given), shards=3)
    assert shard.read_bytes() == whole
    with raises(InputError, "was made by examples"):
        prep.append(str(tmp_path), out)
    for others in ((5, 6), range(5, 5 + COUNT)):
        with pytest.raises(InputError, match="rows are identified by their numbers"):
            prep.append(prep.Examples(map(example, others)), out)
    grown = prep.append(prep.Examples(iter([*given, example(20)])), out)
    assert grown.num_examples == COUNT + 1
