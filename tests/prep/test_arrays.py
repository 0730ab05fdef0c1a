"""Arrays as a source: forms of input, how each dtype is stored, and what is refused."""

import os
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.errors import fault, raises
from tfshards.prep import Arrays
from tfshards.prep.cli.main import main
from tfshards.prep.sources.arrays.mapped import Layout, MappedFile
from tfshards.prep.sources.arrays.npz import Member
from tfshards.prep.sources.arrays.source import ArraysReader
from tfshards.prep.sources.base import Accepted
from tfshards.schemas import InputError, OptionsError, read_manifest


@pytest.fixture
def stage(tmp_path):
    """Return a function from a source to its reader, staged in an empty folder."""
    numbers = iter(range(100))

    def run(source: Arrays, *, preview: bool = False) -> ArraysReader:
        folder = tmp_path / f"staged-{next(numbers)}"
        folder.mkdir()
        return source.stage(folder, preview=preview)

    return run


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def examples(reader: ArraysReader) -> list[dict[str, object]]:
    """Return the values of every row, by feature."""
    listing = reader.listing()
    outcomes = reader.read(listing.rows(np.arange(listing.num_examples)), listing.schema)
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    return [dict(zip(listing.schema.names, outcome.values, strict=True)) for outcome in outcomes]


# Forms of an array, each of which gives the same examples.


def columns(source: Arrays, folder) -> dict[str, list[object]]:
    """Return the values of each feature, after staging the arrays in a new folder."""
    folder.mkdir()
    rows = examples(source.stage(folder))
    return {name: [row[name] for row in rows] for name in rows[0]}


def from_memory(array: np.ndarray, folder) -> Arrays:
    return Arrays({"x": array})


def from_npy(array: np.ndarray, folder) -> Arrays:
    np.save(folder / "x.npy", array)
    return Arrays({"x": folder / "x.npy"})


def from_npz(array: np.ndarray, folder) -> Arrays:
    np.savez(folder / "all.npz", x=array)
    return Arrays.open([str(folder / "all.npz")])


def from_compressed_npz(array: np.ndarray, folder) -> Arrays:
    np.savez_compressed(folder / "all.npz", x=array)
    return Arrays.open([str(folder / "all.npz")])


def from_chunks(array: np.ndarray, folder) -> Arrays:
    def chunks():
        for start in range(0, len(array), 2):
            yield {"x": array[start : start + 2]}

    return Arrays(chunks())


ORIGINS = [from_memory, from_npy, from_npz, from_compressed_npz, from_chunks]


@pytest.mark.parametrize(("number", "kind"), [(10_000, "label"), (10_001, "int")])
def test_more_than_ten_thousand_labels_are_not_classes(number, kind, stage):
    assert stage(Arrays({"label": np.arange(number)})).listing().schema["label"].kind == kind


def test_a_preview_has_the_schema_and_labels_of_a_build_without_copying_tensors(stage, tmp_path):
    arrays = {"x": np.zeros((6, 50), np.float32), "label": np.arange(6)}
    np.savez(tmp_path / "all.npz", **arrays)
    for source in (Arrays(arrays), Arrays.open([str(tmp_path / "all.npz")])):
        whole, preview = stage(source).listing(), stage(source, preview=True)
        assert preview.listing().schema == whole.schema
        assert preview.listing().labels.tolist() == whole.labels.tolist()
        if isinstance(source.arrays["x"], Member):
            assert preview.listing().identity == whole.identity
        assert [path for path, column in preview.arrays.items() if column.parts[0].path] == ["label"]


def test_the_identity_depends_on_the_content(stage, tmp_path):
    array = np.arange(6.0).reshape(3, 2)
    of = {
        "array": stage(Arrays({"x": array})).listing().identity,
        "equal array": stage(Arrays({"x": array.copy()})).listing().identity,
        "other value": stage(Arrays({"x": array + 1})).listing().identity,
        "other dtype": stage(Arrays({"x": array.view(np.int64)})).listing().identity,
        "other shape": stage(Arrays({"x": array.reshape(3, 2, 1)})).listing().identity,
        "other name": stage(Arrays({"y": array})).listing().identity,
    }
    assert of["array"] == of["equal array"]
    assert len(set(of.values())) == 5
    path = tmp_path / "x.npy"
    np.save(path, array)
    before = stage(Arrays({"x": path})).listing()
    assert before.identity != of["other dtype"]
    again = stage(Arrays({"x": path})).listing()
    assert (again.identity, again.stamps.tolist()) == (before.identity, before.stamps.tolist())
    # a file is not read for it; that its content may have changed shows in the stamps of all rows
    os.utime(path, ns=(1, 1))
    touched = stage(Arrays({"x": path})).listing()
    assert touched.identity == before.identity
    assert (touched.stamps != before.stamps).all()


def test_files_with_numbers_that_are_no_parts_are_arrays_of_their_own(in_folder, stage):
    for name in ("x-0", "x-1", "y-3", "z_0", "z_1", "part*"):
        np.save(f"{name}.npy", np.arange(4))
    arguments = ["a=x-0.npy", "b=x-1.npy", "y-3.npy", "z_0.npy", "z_1.npy", "part*.npy"]
    listing = stage(Arrays.open(arguments)).listing()
    assert listing.schema.names == ("a", "b", "y-3", "z_0", "z_1", "part*", "key")
    with raises(InputError, "unreadable", path="x-*.npy"):
        stage(Arrays.open(["x-*.npy"]))


PARTS = {
    "numbered files": lambda: Arrays.open(["x-0.npy", "x-1.npy"]),
    "one name": lambda: Arrays.open(["x=x-0.npy", "x=x-1.npy"]),
    "a list": lambda: Arrays({"x": ["x-0.npy", "x-1.npy"]}).stage(Path()),
    "a tuple of paths": lambda: Arrays({"x": (Path("x-0.npy"), Path("x-1.npy"))}).stage(Path()),
}


@pytest.mark.parametrize("call", PARTS.values(), ids=PARTS)
def test_parts_of_an_array_are_refused_with_the_line_that_builds_them(call, in_folder, stage):
    paths = ["x-0.npy", "x-1.npy"]
    for number, path in enumerate(paths):
        np.save(path, np.arange(2) + 2 * number)
    with pytest.raises((InputError, OptionsError)) as error:
        call()
    line = re.search(r"prep\.(Arrays\(.+? for path in paths\))", str(error.value))[1]
    source = eval(line, {"Arrays": Arrays, "numpy": np, "paths": paths})
    assert [example["x"] for example in examples(stage(source))] == [0, 1, 2, 3]


def test_a_list_of_text_is_refused_but_not_an_array_of_it(stage):
    with raises(InputError, "array-list", name="x"):
        stage(Arrays({"x": ["a", "b"]}))
    assert [example["x"] for example in examples(stage(Arrays({"x": np.array(["a", "b"])})))] == [b"a", b"b"]


STRUCTURED = {
    "fields": np.zeros(4, [("number", "<i4"), ("box", "<f4", (2, 2))]),
    "a record array": np.zeros(4, [("number", "<i4"), ("box", "<f4", (2, 2))]).view(np.recarray),
    "nested fields": np.zeros((4, 3), [("number", "<i4"), ("box", [("x", "?"), ("y", "?")])]),
    "six fields": np.zeros(4, ",".join(["u1"] * 6)),
}


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize(("case", "array"), STRUCTURED.items(), ids=STRUCTURED)
def test_an_array_with_fields_is_refused_with_the_line_that_builds_it(case, array, origin, tmp_path, stage):
    names = "f0, f1, f2, f3, f4 and 1 more" if case == "six fields" else "number, box"
    with raises(InputError, "array-structured", names=names) as error:
        stage(origin(array, tmp_path))
    expression = str(error.value).partition(": prep.Arrays(")[2].removesuffix(")")
    assert set(eval(expression, {"a": array})) == set(array.dtype.names)


def test_an_array_without_a_name_is_refused(stage):
    for array in (np.zeros(3), STRUCTURED["fields"]):
        with raises(OptionsError, "arrays-no-names"):
            Arrays(array)
        with raises(InputError, fault("chunk-type", kind="ndarray")):
            stage(Arrays(iter([array])))
    with raises(OptionsError, "arrays-empty"):
        Arrays({})


@pytest.mark.parametrize("version", [b"\2\0", b"\3\0"])
def test_format_versions_with_longer_headers_are_read(version, tmp_path, stage):
    (tmp_path / "x.npy").write_bytes(npy((2, 1), data=b"ab", version=version))
    source = Arrays({"x": tmp_path / "x.npy"})
    assert [example["x"] for example in examples(stage(source))] == [b"a", b"b"]
    assert source.location() is None


def npy(shape: object, descr: object = "|u1", data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    return npy_with_header(header + b"\n", data, version)


def npy_with_header(header: bytes, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    length = struct.pack("<H", len(header)) if version == b"\1\0" else struct.pack("<I", len(header))
    return b"\x93NUMPY" + version + length + header + data


HOSTILE = {
    "cut": (npy((4,), data=b"abc"), r"x\.npy: holds 3 bytes of data; uint8 \(4,\) needs 4$"),
    "padded": (npy((4,), data=b"abcde"), r"holds 5 bytes of data; uint8 \(4,\) needs 4$"),
    "a length that memory does not hold": (npy((2**40,)), r"holds 0 bytes of data; .* needs 1099511627776$"),
    "rows of nothing without end": (npy((10**12, 0)), r"^the rows of the arrays hold no values"),
    "more rows than fit an index": (npy((2**70, 0)), r"^the rows of the arrays hold no values"),
    "more elements than fit": (npy((1, 0, 2**62, 2**62)), r"more than 2\^63 - 1 elements$"),
    "a negative length": (npy((-1, -1), data=b"a"), r"has the shape \(-1, -1\); every dimension must be"),
    "truth for a length": (npy((True,), data=b"a"), r"has the shape \(True,\); every dim"),
    "half a row": (npy((1.5,), data=b"a"), r"is not a readable \.npy array: shape is not valid: \(1\.5,\)"),
    "no rows axis": (npy((), data=b"a"), r"is a single value; the first axis must count the examples"),
    "objects": (npy((1,), "|O", b"\x80\x04N."), r"holds Python objects, which are never unpickled"),
    "bfloat16": (npy((1,), "<V2", b"ab"), r"dtype void16 cannot be stored; convert it to one of bfloat16"),
    "an unknown dtype": (npy((1,), "zzz"), r"is not a readable \.npy array: descr is not a valid dtype"),
    "a custom dtype": (npy((1,), ("<f4", (2**40,))), r"readable \.npy array: invalid shape in fixed-type"),
    "a number for a character": (npy((1,), "<U1", b"\xff" * 4), r"holds a number above 0x10ffff, which is"),
    "no magic": (b"PK\3\4 and so on", r": is not an \.npy file$"),
    "nothing": (b"", r": is not an \.npy file$"),
    "another version": (npy((1,), version=b"\4\0"), r"format version 4\.0; 1\.0, 2\.0 and 3\.0 can be read$"),
    "a header beyond its file": (b"\x93NUMPY\2\0" + b"\xff" * 8, r"expected 4294967295 bytes got 4$"),
    "10,001 bytes": (npy_with_header(b" " * 10_001, version=b"\2\0"), r"expected 10001 bytes got 10000$"),
    "a header that is cut": (npy((1,))[:20], r"is not a readable \.npy array: EOF"),
    "a header that is a list": (npy_with_header(b"[]\n"), r"Header is not a dictionary"),
    "a header of mixed keys": (npy_with_header(b"{1: 2, 'a': 3}\n"), r"is not a readable \.npy array"),
    "a header of brackets": (npy_with_header(b"{" * 500 + b"\n"), r"is not a readable \.npy array"),
    "a header of octals": (npy_with_header(b"{'shape': (01,)}\n"), r"is not a readable \.npy array"),
}


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_before_it_is_loaded(data, message, tmp_path, stage):
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        examples(stage(Arrays({"x": path})))
    with zipfile.ZipFile(tmp_path / "all.npz", "w") as archive:
        archive.writestr("x.npy", data)
    with pytest.raises(InputError, match=message.replace(r"x\.npy: ", r"all\.npz\[x\]: ")):
        examples(stage(Arrays.open([str(tmp_path / "all.npz")])))


def test_paths_that_are_missing_or_not_files_are_named(tmp_path, stage):
    for source in ({"x": tmp_path / "gone.npy"}, {"x": Member(str(tmp_path / "gone.npz"), "x")}):
        with pytest.raises(InputError, match=r"gone\.np.*: cannot be read: .*No such file"):
            stage(Arrays(source))
    with raises(InputError, "npz-unreadable"):
        Arrays.open([str(tmp_path / "gone.npz")])
    np.savez(tmp_path / "all.npz", x=np.zeros(2))
    with raises(InputError, "npz-unreadable"):
        stage(Arrays({"y": Member(str(tmp_path / "all.npz"), "y")}))
    (tmp_path / "folder.npy").mkdir()
    with raises(InputError, "unreadable"):
        stage(Arrays({"x": tmp_path / "folder.npy"}))


def test_a_file_on_a_disk_is_mapped_rather_than_copied(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((300_000, 5), np.float32))
    (tmp_path / "staged").mkdir()
    tracemalloc.start()
    try:
        reader = Arrays({"x": tmp_path / "x.npy"}).stage(tmp_path / "staged")
        block = reader.arrays["x"].take(np.array([299_999]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert block.shape == (1, 5)
    assert peak < 200_000
    assert [path for path in (tmp_path / "staged").rglob("*") if path.is_file()] == []


def test_a_file_that_is_cut_between_its_listing_and_its_mapping_is_reported(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(4, np.uint8))
    os.truncate(tmp_path / "x.npy", (tmp_path / "x.npy").stat().st_size - 1)
    array = MappedFile(str(tmp_path / "x.npy"), Layout("|u1", (4,)), ())
    with raises(InputError, "array-unmappable", path=str(tmp_path / "x.npy")):
        array.take(np.arange(4))


def test_a_file_that_changes_or_vanishes_during_reading_ends_it(tmp_path, stage):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(1000))
    reader = stage(Arrays({"x": path}))
    listing = reader.listing()
    rows = listing.rows(np.arange(3))
    assert reader.read(rows, listing.schema)[2].values[0] == 2
    os.utime(path, ns=(1, 1))
    with raises(InputError, "changed-file"):
        reader.read(rows, listing.schema)
    np.save(path, np.arange(2))
    with raises(InputError, "changed-file"):
        reader.read(rows, listing.schema)
    path.unlink()
    with raises(InputError, "unreadable"):
        reader.read(rows, listing.schema)


@pytest.mark.parametrize("origin", ORIGINS[:2])
@pytest.mark.parametrize(
    ("column", "groups"),
    [
        (np.array([3, 1, 3], ">i2"), [b"3", b"1", b"3"]),
        (np.array(["ä", "b", "ä"]), ["ä".encode(), b"b", "ä".encode()]),
        (np.array(["caf\udce9", "b", "b"]), [b"caf\xe9", b"b", b"b"]),
        (np.array([b"x", b"y", b"x"]), [b"x", b"y", b"x"]),
        (np.array([0.5, 0.0, -0.0]), [b"0.5", b"0.0", b"0.0"]),
    ],
)
def test_rows_with_equal_values_are_a_group(column, groups, origin, stage, tmp_path):
    reader = stage(origin(column, tmp_path))
    assert reader.groups(reader.listing(), "x") == groups


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.npy", "--shards", "4", "b.npy", "out"],
        ["a.npy", "--shards", "4", "b.npy", "--json", "out", "--", "--runner=DirectRunner"],
    ],
)
def test_options_may_be_given_between_arrays(arguments, in_folder, capfd):
    np.save("a.npy", np.arange(8))
    np.save("b.npy", np.zeros((8, 2)))
    assert main(["build", "arrays", *arguments]) == 0
    manifest = read_manifest("out")
    assert manifest.schema.names == ("a", "b", "key")
    assert len(manifest.splits["train"].shards) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.npy", "--shards", "4"], "the following arguments are required: DATASET"),
        (["a.npy", "--sahrds", "b.npy", "out"], "unrecognized arguments: --sahrds"),
    ],
)
def test_a_mistake_between_arrays_is_reported_in_one_line(arguments, message, in_folder, capfd):
    assert main(["build", "arrays", *arguments]) == 2
    err = capfd.readouterr().err
    assert message in err
    assert err.count("\n") == 1
