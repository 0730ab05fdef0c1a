"""Arrays as a source: files that change, memory and disks that are too small, groups, and what a build needs.

tests/conformance/test_arrays.py has what each array becomes, and which files are refused.
"""

import os
import re
import shutil
import tracemalloc
import zipfile
from contextlib import contextmanager
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.errors import raises
from tests.prep.table_files import check_repair
from tfshards.prep import Arrays, append, plan
from tfshards.schemas import InputError, OptionsError

from .test_array_damage import npy


@pytest.fixture
def stage(tmp_path):
    """Return a function from a source to its reader, staged in an empty folder."""
    numbers = iter(range(100))

    def run(source: Arrays, **given):
        folder = tmp_path / f"staged-{next(numbers)}"
        folder.mkdir()
        return source.stage(folder, **given)

    return run


@pytest.fixture
def archive(tmp_path):
    """An .npz with one member of a megabyte of zeros, which is compressed."""
    np.savez_compressed(tmp_path / "all.npz", x=np.zeros((40, 2**20), np.uint8))
    return tmp_path / "all.npz"


def test_more_than_ten_thousand_values_are_no_classes(tmp_path):
    for numbers in (np.arange(10_001), np.arange(10_001).astype("S5")):
        for found, kind in ((numbers, {"int", "bytes"}), (numbers[:-1], {"label"})):
            planned = plan(Arrays({"label": found}), tmp_path / "out")
            assert planned.listing.schema["label"].kind in kind
    for labels in (np.arange(10_001), np.array([0.5, 1, 2])):
        assert plan(Arrays({"labels": labels}), tmp_path / "out").warnings == ()


def test_another_content_is_another_build(tmp_path, quiet_build):
    array = np.arange(6.0).reshape(3, 2)
    others = {"x": array + 1}, {"x": array.view(np.int64)}, {"x": array.reshape(3, 2, 1)}, {"y": array}
    first, same, *rest = (
        quiet_build(Arrays(each), tmp_path / f"{number}/out").build_id
        for number, each in enumerate(({"x": array}, {"x": array.copy()}, *others))
    )
    assert first == same
    assert len({first, *rest}) == 5
    for added in (0, 1):
        np.save(tmp_path / f"{added}.npy", array + added)
    quiet_build(Arrays({"x": tmp_path / "0.npy"}), tmp_path / "out")
    os.replace(tmp_path / "1.npy", tmp_path / "0.npy")
    with raises(InputError, "dataset-of-other-inputs"):
        quiet_build(Arrays({"x": tmp_path / "0.npy"}), tmp_path / "out")


PARTS = {
    "numbered files": lambda: Arrays.open(["x-0.npy", "x-1.npy"]),
    "one name": lambda: Arrays.open(["x=x-0.npy", "x=x-1.npy"]),
    "a list": lambda: Arrays({"x": ["x-0.npy", "x-1.npy"]}).stage(Path()),
}


@pytest.mark.parametrize("call", PARTS.values(), ids=PARTS)
def test_parts_of_an_array_are_refused_with_the_line_that_builds_them(
    call, tmp_path, quiet_build, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    paths = ["x-0.npy", "x-1.npy"]
    for number, path in enumerate(paths):
        np.save(path, np.arange(2) + 2 * number)
    with pytest.raises((InputError, OptionsError)) as error:
        call()
    line = re.search(r"prep\.(Arrays\(.+? for path in paths\))", str(error.value))[1]
    assert quiet_build(eval(line, {"Arrays": Arrays, "numpy": np, "paths": paths}), "out").num_examples == 4


@pytest.mark.parametrize("types", [[("number", "<i4"), ("box", "<f4", (2, 2))], ",".join(["u1"] * 6)])
def test_an_array_with_fields_is_refused_with_the_line_that_builds_it(types, stage):
    array = np.zeros(4, types)
    with raises(InputError, "array-structured") as error:
        stage(Arrays({"x": array}))
    expression = str(error.value).partition(": prep.Arrays(")[2].removesuffix(")")
    assert set(eval(expression, {"a": array})) == set(array.dtype.names)


@contextmanager
def peak_below(num_bytes):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < num_bytes
    finally:
        tracemalloc.stop()


def test_a_file_on_a_disk_is_mapped_rather_than_copied(tmp_path, stage):
    np.save(tmp_path / "x.npy", np.zeros((300_000, 5), np.float32))
    with peak_below(200_000):
        reader = stage(Arrays({"x": tmp_path / "x.npy"}))
        assert reader.arrays["x"].take(np.array([299_999])).shape == (1, 5)
    assert [path for path in tmp_path.glob("staged-*/**/*") if path.is_file()] == []


def test_a_large_member_is_unpacked_in_little_memory(archive, tmp_path, stage):
    source = Arrays.open([str(archive)])
    with peak_below(8 << 20):
        stage(source)
    assert sum(path.stat().st_size for path in tmp_path.glob("staged-*/**/*.npy")) > 40 << 20


def test_copies_that_do_not_fit_on_the_disk_are_not_started(archive, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=50_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    (tmp_path / "staged").mkdir()
    with raises(InputError, "disk-full", what="the copy of the arrays"):
        Arrays.open([str(archive)]).stage(tmp_path / "staged")
    assert not [*(tmp_path / "staged").rglob("*.npy")]


def test_a_copy_that_cannot_be_written_is_not_reported_as_a_damaged_archive(archive, monkeypatch, stage):
    source, opened = Arrays.open([str(archive)]), Path.open
    monkeypatch.setattr(Path, "open", lambda found, mode="r": opened(Path("/dev/full"), mode))
    with raises(InputError, "copy-unwritable"):
        stage(source)


def test_an_archive_replaced_after_its_names_were_read_is_reported(archive, stage):
    source = Arrays.open([str(archive)])
    with zipfile.ZipFile(archive, "w") as found:
        found.writestr("y.npy", npy(np.arange(3)))
    with raises(InputError, "npz-unreadable"):
        stage(source)


def test_a_file_that_changes_or_vanishes_during_reading_ends_it(tmp_path, stage):
    paths = {name: tmp_path / f"{name}.npy" for name in ("x_train", "x_test", "label_train", "label_test")}
    for path in paths.values():
        np.save(path, np.array(["b", "a"]))
    reader = stage(Arrays(paths))
    listing = reader.listing()
    rows = listing.rows(np.arange(4))
    assert [*reader.read(rows, listing.schema)][2].values[0] == b"b"
    os.utime(paths["x_test"], ns=(1, 1))
    assert [*reader.read(rows[:2], listing.schema)]
    for change, code in (
        (lambda: None, "changed-file"),
        (lambda: np.save(paths["x_test"], np.arange(1)), "changed-file"),
        (paths["x_test"].unlink, "unreadable"),
    ):
        change()
        with raises(InputError, code):
            [*reader.read(rows, listing.schema)]


GROUPS = {
    "integers": (np.array([3, 1, 3], ">i2"), [b"3", b"1", b"3"]),
    "text": (np.array(["ä", "caf\udce9", "ä"]), ["ä".encode(), b"caf\xe9", "ä".encode()]),
    "bytes": (np.array([b"x", b"y", b"x"]), [b"x", b"y", b"x"]),
    "zeros of either sign": (np.array([0.5, 0.0, -0.0]), [b"0.5", b"0.0", b"0.0"]),
    "narrow zeros": (np.array([0.5, 0.0, -0.0], ml_dtypes.bfloat16), [b"0.5", b"0.0", b"0.0"]),
    "NaN": (np.array([0.0, np.nan, np.nan], np.float32), None),
    "no text": (np.array(["a", "", "b"]), None),
}


@pytest.mark.parametrize(("column", "groups"), GROUPS.values(), ids=GROUPS)
def test_rows_with_equal_values_are_a_group(column, groups, stage):
    reader = stage(Arrays({"x": column}), group_by="x")
    if groups is None:
        with raises(InputError, "group-by-missing", by="x"):
            reader.listing()
    else:
        assert reader.listing().groups == groups


def test_repair_and_append_read_the_splits_and_roles_of_the_build(tmp_path, array_files, quiet_build):
    arrays = {f"{name}_{split}": np.arange(12) % 3 for name in ("x", "y") for split in ("train", "test")}
    files = array_files(**arrays)
    out = tmp_path / "out"
    quiet_build(Arrays.open(files, label=""), out)
    check_repair(out, *files, split="test")
    more = {n: np.concatenate([array, array[:1]]) if "test" in n else array for n, array in arrays.items()}
    grown = append(array_files(**more), out, engine="local", log=lambda _: None)
    assert {name: split.num_examples for name, split in grown.splits.items()} == {"train": 12, "test": 13}
    assert grown.schema["y"].kind == "int"
