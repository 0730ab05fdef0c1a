"""Arrays in several files: which files are parts of one array, their order, and that none is missing."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raises
from tfshards.prep import Arrays
from tfshards.prep.sources.arrays.mapped import Layout, MappedArray, MappedFile
from tfshards.schemas import InputError, OptionsError

from .test_arrays import columns


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(*paths: str) -> None:
    """Write an array of two rows into each file, numbered consecutively."""
    for number, path in enumerate(paths):
        Path(path).parent.mkdir(exist_ok=True)
        np.save(path, np.arange(2) + 2 * number)


def values(source: Arrays) -> dict[str, list[object]]:
    found = columns(source, Path("staged"))
    del found["key"]
    return found


ORDERS = {
    "from 0": (["x-0.npy", "x-1.npy"], ["x-1.npy", "x-0.npy"], "x"),
    "from 1": (["x-1.npy", "x-2.npy"], ["x-1.npy", "x-2.npy"], "x"),
    "2 before 10": (
        [f"x-{number}.npy" for number in range(11)],
        sorted(f"x-{number}.npy" for number in range(11)),
        "x",
    ),
    "with zeros before": (
        ["a-x-0007.npy".replace("7", str(number)) for number in (0, 1)],
        ["a-x-0000.npy", "a-x-0001.npy"],
        "a-x",
    ),
    "named as shards are": (
        ["x-00000-of-00002.npy", "x-00001-of-00002.npy"],
        ["x-00001-of-00002.npy", "x-00000-of-00002.npy"],
        "x",
    ),
    "counted from 1 to the last": (["x-1-of-2.npy", "x-2-of-2.npy"], ["x-2-of-2.npy", "x-1-of-2.npy"], "x"),
    "one of one": (["x-00000-of-00001.npy"], ["x-00000-of-00001.npy"], "x"),
    "with numbers in the name": (["a-1-b-0.npy", "a-1-b-1.npy"], ["a-1-b-1.npy", "a-1-b-0.npy"], "a-1-b"),
    "in a folder": (["d/x-0.npy", "d/x-1.npy"], ["d/x-0.npy", "d/x-1.npy"], "x"),
    "by a pattern": (["x-0.npy", "x-1.npy", "x-2.npy"], ["x-*.npy"], "x"),
    "by a pattern with a name": (["x_1.npy", "x_2.npy"], ["y=x_?.npy"], "y"),
    "by a pattern, 2 before 10": ([f"x{number}.npy" for number in range(11)], ["y=x*.npy"], "y"),
    "by a pattern, of shards": (["x-0-of-2.npy", "x-1-of-2.npy"], ["x-*-of-2.npy"], "x"),
    "by a pattern that matches one": (["x-0.npy"], ["y=x-*.npy"], "y"),
    "in the order that is given": (["b.npy", "a.npy", "x-7.npy"], ["y=b.npy", "y=a.npy", "y=x-7.npy"], "y"),
    "a pattern and more": (["x-0.npy", "x-1.npy", "a.npy"], ["y=x-*.npy", "y=a.npy"], "y"),
    "no parts: one number": (["x-3.npy"], ["x-3.npy"], "x-3"),
    "no parts: a name with stars": (["x*.npy"], ["x*.npy"], "x*"),
}


@pytest.mark.parametrize(("files", "arguments", "name"), ORDERS.values(), ids=ORDERS)
def test_parts_are_one_array_in_their_order(files, arguments, name, folder):
    save(*files)
    assert values(Arrays.open(arguments)) == {name: list(range(2 * len(files)))}


def test_an_array_in_parts_is_ordered_by_its_first_part(folder):
    save("a.npy", "x-0.npy", "b.npy", "x-1.npy")
    np.save("a.npy", np.zeros(4))
    np.save("b.npy", np.zeros(4))
    assert list(values(Arrays.open(["a.npy", "x-1.npy", "b.npy", "x-0.npy"]))) == ["a", "x", "b"]


NUMBER = r"^parts of 'x': the numbers {} must be 0 to {}, or 1 to {}, each once; give every part, or name arr"
ALIKE = r"^parts of 'x': the files are not numbered in the same way in one folder; give them in order as"
COMMAND_LINES = {
    "a gap": (["x-0.npy", "x-2.npy"], NUMBER.format("0, 2", 1, 2)),
    "a gap at the start": (["x-2.npy", "x-3.npy"], NUMBER.format("2, 3", 1, 2)),
    "the last of four": ([f"x-0000{n}-of-00004.npy" for n in range(3)], NUMBER.format("0, 1, 2", 3, 4)),
    "all but one": (["x-00001-of-00004.npy"], NUMBER.format("1", 3, 4)),
    "more than there are": ([f"x-{number}-of-2.npy" for number in range(3)], NUMBER.format("0, 1, 2", 1, 2)),
    "one number twice": (["x-0.npy", "x-1.npy", "x-01.npy"], NUMBER.format("0, 1, 1", 2, 3)),
    "two folders": (["a/x-0.npy", "b/x-1.npy"], ALIKE),
    "two numbers of parts": (["x-0-of-2.npy", "x-1-of-3.npy"], ALIKE),
    "with and without the number of parts": (["x-0.npy", "x-1-of-2.npy"], ALIKE),
    "parts, a whole": (["x-0.npy", "x-1.npy", "x.npy"], r"^x\.npy: two arrays are named 'x'; name them wi"),
    "a whole and parts": (["x.npy", "x-0.npy", "x-1.npy"], r"^x-0\.npy: two arrays are named 'x'; name them"),
    "a part given by name twice": (["y=a.npy", "y=a.npy"], r"^y=a\.npy: a\.npy is a part of 'y' twice$"),
    "parts named as row numbers": (["key-0.npy", "key-1.npy"], r"^key-0\.npy: an array cannot be named 'k"),
}


@pytest.mark.parametrize(("arguments", "message"), COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_missing_part_numbers_are_reported_without_reading_the_disk(arguments, message, folder):
    with pytest.raises(OptionsError, match=message):
        Arrays.open(arguments)


PATTERNS = {
    "nothing": ([], r"^y=x-\*\.npy: no file has this name or matches the pattern$"),
    "a gap": (["x-0.npy", "x-2.npy"], r"^y=x-\*\.npy: the numbers 0, 2 must be 0 to 1, or 1 to 2, each once"),
    "no numbers": (["x-a.npy", "x-b.npy"], r"^y=x-\*\.npy: the files are not numbered in the same way"),
    "two arrays": (["x-0.npy", "x-1.npy", "x-y-0.npy"], r"^y=x-\*\.npy: the files are not numbered in the"),
}


@pytest.mark.parametrize(("files", "message"), PATTERNS.values(), ids=PATTERNS)
def test_a_pattern_whose_files_are_not_all_parts_of_one_array_is_refused(files, message, folder):
    save(*files)
    with pytest.raises(InputError, match=message):
        Arrays.open(["y=x-*.npy"])


def test_parts_may_differ_in_byte_order_memory_order_and_length_of_strings(folder):
    numbers = np.arange(24, dtype=np.int16).reshape(4, 2, 3)
    np.save("n-0.npy", numbers[:1].astype(">i2"))
    np.save("n-1.npy", np.asfortranarray(numbers[1:]))
    np.save("s-0.npy", np.array(["a"]))
    np.save("s-1.npy", np.array(["猫", "bcd", ""], ">U3"))
    found = values(Arrays.open(["n-0.npy", "n-1.npy", "s-0.npy", "s-1.npy"]))
    assert found["n"] == [row.tobytes() for row in numbers]
    assert found["s"] == [b"a", "猫".encode(), b"bcd", b""]


UNLIKE = {
    "dtype": (
        np.zeros(2, np.float32),
        r"^x-1\.npy: as a part of 'x' holds float32 \(\) per example, but x-0\.npy holds float64 \(\); parts",
    ),
    "shape": (np.zeros((2, 3)), r"^x-1\.npy: as a part of 'x' holds float64 \(3,\) per example"),
    "bytes and text": (np.array(["a"]), r"^x-1\.npy: as a part of 'x' holds <U1 \(\) per example"),
    "objects": (np.array([None]), r"^x-1\.npy: holds Python objects, which are never unpickled"),
    "no rows axis": (np.array(1.0), r"^x-1\.npy: is a single value; the first axis must count"),
}


@pytest.mark.parametrize(("array", "message"), UNLIKE.values(), ids=UNLIKE)
def test_parts_must_have_the_same_dtype_and_shape(array, message, folder):
    np.save("x-0.npy", np.zeros(2))
    np.save("x-1.npy", array)
    with pytest.raises(InputError, match=message):
        values(Arrays.open(["x-0.npy", "x-1.npy"]))


@pytest.mark.parametrize(("paths", "found"), [([], "it is empty"), (["a.npy", "b"], "'b' is not one")])
def test_a_list_of_anything_but_paths_is_refused(paths, found, folder):
    message = rf"^array 'x': a list must hold the paths of \.npy files, but {found}"
    with pytest.raises(InputError, match=message):
        values(Arrays({"x": paths}))


def test_a_part_that_is_missing_or_changes_during_the_build_is_reported(folder):
    save("x-0.npy", "x-1.npy")
    with raises(InputError, "unreadable"):
        Arrays.open(["x-0.npy", "x-1.npy", "x-2.npy"]).stage(folder)
    (folder / "staged").mkdir()
    reader = Arrays.open(["x-0.npy", "x-1.npy"]).stage(folder / "staged")
    column = reader.arrays["x"]
    assert column.take(np.array([3, 0, 2])).tolist() == [3, 0, 2]
    os.utime("x-1.npy", ns=(1, 1))
    assert column.take(np.array([1])).tolist() == [1]
    with raises(InputError, "changed-file"):
        column.take(np.array([0, 2]))
    with raises(InputError, "changed-file"):
        column.check_unchanged()


def test_parts_are_not_copied_and_the_stamps_depend_on_all_of_them(folder):
    save("x-0.npy", "x-1.npy")
    (folder / "staged").mkdir()
    source = Arrays({"x": ["x-0.npy", "x-1.npy"]})
    reader = source.stage(folder / "staged")
    assert [path for path in (folder / "staged").rglob("*") if path.is_file()] == []
    before = reader.listing()
    for part in ("x-0.npy", "x-1.npy"):
        os.utime(part, ns=(1, 1))
        (folder / f"staged-{part}").mkdir()
        after = source.stage(folder / f"staged-{part}").listing()
        assert after.identity == before.identity
        assert (after.stamps != before.stamps).all()
        before = after


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any),
    picks=st.lists(st.floats(0, 1, exclude_max=True), max_size=20),
)
def test_any_rows_of_any_parts_equal_those_of_the_whole_array(lengths, picks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    whole = np.arange(sum(lengths) * 2).reshape(-1, 2)
    ends = np.cumsum(lengths)
    parts = []
    for number, end in enumerate(ends):
        rows = whole[end - lengths[number] : end]
        np.save(folder / f"{number}.npy", rows)
        parts.append(MappedFile(f"{folder}/{number}.npy", Layout("<i8", rows.shape), ()))
    numbers = np.array([int(pick * len(whole)) for pick in picks], dtype=np.int64)
    column = MappedArray(tuple(parts))
    assert column.layout.shape == whole.shape
    np.testing.assert_array_equal(column.take(numbers), whole[numbers])
