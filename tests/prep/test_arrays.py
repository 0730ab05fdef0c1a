"""Arrays as a source: forms of input, how each dtype is stored, and what is refused."""

import os
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.errors import fault, raises
from tfshards.prep import Arrays
from tfshards.prep.cli.main import main
from tfshards.prep.sources.arrays.files import stage_arrays
from tfshards.prep.sources.arrays.mapped import Layout, MappedFile
from tfshards.prep.sources.arrays.npz import Member
from tfshards.prep.sources.arrays.source import ArraysReader
from tfshards.prep.sources.base import Accepted
from tfshards.schemas import Feature, InputError, OptionsError, read_manifest
from tfshards.schemas.schema import ITEM_SIZES

NUMPY_DTYPES = sorted(set(ITEM_SIZES) - {"bfloat16"})


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


def columns(source: Arrays, folder) -> dict[str, list[object]]:
    """Return the values of each feature, after staging the arrays in a new folder."""
    folder.mkdir()
    rows = examples(source.stage(folder))
    return {name: [row[name] for row in rows] for name in rows[0]}


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    number = int(np.prod(shape))
    if dtype == "bool":
        return (np.arange(number) % 3 == 0).reshape(shape)
    if "int" in dtype:
        limits = np.iinfo(dtype)
        return np.resize(np.array([limits.min, limits.max, 1, 0, 7], dtype), shape)
    made = np.resize(np.array([0.1, -0.0, np.inf, np.nan, -3e4]), shape).astype(dtype)
    return made * (1 + 2j) if "complex" in dtype else made


# Forms of an array, each of which gives the same examples.


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
LAYOUTS = {
    "C order": lambda array: array,
    "Fortran order": np.asfortranarray,
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "every second of a larger one": lambda array: np.repeat(array, 2, axis=0)[::2],
}


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_a_tensor_is_stored_as_its_little_endian_bytes(dtype, layout, origin, tmp_path, stage):
    array = values(dtype, (5, 2, 3))
    reader = stage(origin(layout(array), tmp_path))
    assert reader.listing().schema["x"] == Feature("x", "raw", dtype, (2, 3))
    little = array.astype(array.dtype.newbyteorder("<"))
    assert [example["x"] for example in examples(reader)] == [row.tobytes() for row in little]


@pytest.mark.parametrize("origin", [from_npy, from_chunks])
@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_scalars_are_stored_as_numbers_if_int64_holds_them_or_as_their_bytes(dtype, origin, tmp_path, stage):
    array = values(dtype, (5,)).astype(np.dtype(dtype).newbyteorder(">"))
    reader = stage(origin(array, tmp_path))
    is_number = "int" in dtype and dtype != "uint64"
    assert reader.listing().schema["x"] == Feature("x", "int" if is_number else "raw", dtype)
    little = array.astype(array.dtype.newbyteorder("<"))
    stored = array.tolist() if is_number else [row.tobytes() for row in little]
    assert [example["x"] for example in examples(reader)] == stored


LISTS = [("bool", "int"), ("uint8", "int"), ("int64", "int"), ("float16", "float"), ("float32", "float")]


@pytest.mark.parametrize(("dtype", "kind"), LISTS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)])
def test_on_request_values_are_stored_as_lists(shape, dtype, kind, stage):
    array = values(dtype, (4, *shape))
    reader = stage(Arrays({"x": array, "y": np.arange(4)}, lists=("x",)))
    assert reader.listing().schema["x"] == Feature("x", kind, dtype, shape)
    got = [np.ravel(example["x"]) for example in examples(reader)]
    np.testing.assert_array_equal(np.array(got).reshape(array.shape).astype(dtype), array)


@pytest.mark.parametrize("lists", [(), ("x",)])
@pytest.mark.parametrize("chunked", [False, True])
def test_bfloat16_in_memory_is_exact_as_bytes_and_as_a_list(chunked, lists, stage):
    array = np.array([[0.1, -0.0], [np.inf, -3e38]], ml_dtypes.bfloat16)
    reader = stage(Arrays([{"x": array[:1]}, {"x": array[1:]}] if chunked else {"x": array}, lists=lists))
    assert reader.listing().schema["x"] == Feature("x", "float" if lists else "raw", "bfloat16", (2,))
    assert reader.listing().sizes.tolist() == [4, 4]
    if lists:
        assert [example["x"] for example in examples(reader)] == array.astype(np.float32).tolist()
    else:
        assert [example["x"] for example in examples(reader)] == [row.tobytes() for row in array]


STRINGS = {
    "bytes": (np.array([b"", b"\xff\0a", b"cat"]), [b"", b"\xff\0a", b"cat"]),
    "text": (np.array(["", "Straße", "猫"]), [b"", "Straße".encode(), "猫".encode()]),
    "big-endian text": (np.array(["", "猫"], ">U3"), [b"", "猫".encode()]),
    "names that are not UTF-8": (np.array(["caf\udce9", "a"]), [b"caf\xe9", b"a"]),
    "lists of bytes": (np.array([[b"a", b"bc"], [b"", b"d"]]), [[b"a", b"bc"], [b"", b"d"]]),
    "tables of text": (np.array([[["a"], ["ü"]]]), [[b"a", "ü".encode()]]),
    "text in Fortran order": (
        np.asfortranarray([["a", "b"], ["c", "d"], ["e", "f"]]),
        [[b"a", b"b"], [b"c", b"d"], [b"e", b"f"]],
    ),
    "lists of none": (np.zeros((2, 0), "U1"), [[], []]),
}


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize(("array", "stored"), STRINGS.values(), ids=STRINGS)
def test_strings_are_stored_as_byte_strings(array, stored, origin, tmp_path, stage):
    reader = stage(origin(array, tmp_path))
    with_rows = ArraysReader({**reader.arrays, **stage(Arrays({"y": np.arange(len(array))})).arrays}, ())
    assert with_rows.listing().schema["x"] == Feature("x", "bytes", "bytes", array.shape[1:])
    assert [example["x"] for example in examples(with_rows)] == stored


def test_the_key_is_the_row_number_and_the_last_feature(stage):
    reader = stage(Arrays({"b": np.arange(12), "a": np.zeros((12, 2), np.uint8)}))
    assert reader.listing().schema.names == ("b", "a", "key")
    assert [example["key"] for example in examples(reader)] == [b"%d" % row for row in range(12)]
    assert list(reader.listing().keys[9:]) == [b"9", b"10", b"11"]
    assert reader.listing().keys[-1] == b"11"


LABELS = {
    "classes": (np.array([2, 0, 2, 1], np.uint8), "label", [2, 0, 2, 1]),
    "big-endian classes": (np.array([2, 0, 2, 1], ">i4"), "label", [2, 0, 2, 1]),
    "a negative one": (np.array([2, -1, 0, 1]), "int", None),
    "no integers": (np.array([2.0, 1.0, 0.0, 1.0]), "raw", None),
    "truth values": (np.array([True, False, True, True]), "label", [1, 0, 1, 1]),
    "one-hot rows": (np.eye(4, dtype=np.int64), "raw", None),
    "uint64": (np.array([2, 0, 2, 1], np.uint64), "label", [2, 0, 2, 1]),
    "uint64 above int64": (np.array([2, 0, 2**63, 1], np.uint64), "raw", None),
    "text": (np.array(["b", "a", "b", "c"]), "label", [1, 0, 1, 2]),
    "lists of text": (np.array([["a"], ["b"]]), "bytes", None),
    "bfloat16": (np.array([1, 2, 3, 4], ml_dtypes.bfloat16), "raw", None),
}


@pytest.mark.parametrize(("array", "kind", "labels"), LABELS.values(), ids=LABELS)
def test_an_array_named_label_holds_classes_if_possible(array, kind, labels, stage):
    listing = stage(Arrays({"label": array})).listing()
    assert listing.schema["label"].kind == kind
    assert (None if listing.labels is None else listing.labels.tolist()) == labels


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


def test_a_command_line_names_arrays_by_name_stem_or_member(in_folder, stage):
    np.save("x.npy", np.arange(4))
    np.save("b=c.npy", np.arange(4))
    np.savez("more.npz", z=np.arange(4), y=np.zeros((4, 2)))
    (in_folder / "year=2024").mkdir()
    np.save("year=2024/v.npy", np.arange(4))
    arguments = ["x.npy", "w=x.npy", "a=b=c.npy", "./year=2024/v.npy", "u=year=2024/v.npy", "more.npz"]
    listing = stage(Arrays.open(arguments, lists=("x",))).listing()
    assert listing.schema.names == ("x", "w", "a", "v", "u", "y", "z", "key")


COMMAND_LINES = {
    "no type that is known": (["x.txt"], fault("array-argument", argument="x.txt")),
    "no name": (["=x.npy"], fault("array-argument", argument="=x.npy")),
    "a name for all of an archive": (["x=more.npz"], fault("array-argument", argument="x=more.npz")),
    "one name twice": (["x.npy", "x=y.npy"], fault("array-names-repeated", argument="x=y.npy", name="x")),
    "the row number": (["key=x.npy"], fault("array-name-of-file", argument="key=x.npy", feature="key")),
    "the same by its stem": (["key.npy"], fault("array-name-of-file", argument="key.npy", feature="key")),
    "a name that is not printable": (["a\nb=x.npy"], "array-name-of-file"),
    "a name of two files": (["x=a.npy", "x=b.npy"], fault("array-names-repeated", argument="x=b.npy")),
    "numbered files": (["x-0.npy", "y.npy", "d/x-10.npy"], fault("array-in-parts", name="x")),
    "numbered like shards": (["a-1-of-2.npy", "a-2-of-2.npy"], fault("array-in-parts", name="a")),
    "numbers in the name": (["a-1-b-0.npy", "a-1-b-1.npy"], fault("array-in-parts", name="a-1-b")),
}


@pytest.mark.parametrize(("arguments", "message"), COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_a_wrong_command_line_is_reported_without_reading_the_disk(arguments, message, in_folder):
    with raises(OptionsError, message):
        Arrays.open(arguments)


IN_MEMORY = {
    "different lengths": ({"x": np.zeros(3), "y": np.zeros((4, 2))}, "arrays-differ-in-length"),
    "no rows": ({"x": np.zeros((0, 2))}, "arrays-no-rows"),
    "rows of nothing": ({"x": np.zeros((3, 0))}, "arrays-no-values"),
    "a single value": ({"x": np.array(3)}, "npy-single"),
    "objects": ({"x": np.array([{}, []], object)}, "npy-objects"),
    "dates": ({"x": np.array(["2024-01-01"], "M8[D]")}, fault("array-dtype", dtype="datetime64[D]")),
    "bytes without a meaning": ({"x": np.zeros(2, "V7")}, fault("array-dtype", dtype="void56")),
    "a mask": ({"x": np.ma.masked_equal([1, 2], 2)}, "array-masked"),
    "long doubles": ({"x": np.zeros(2, np.longdouble)}, fault("array-dtype", dtype="float128")),
    "too many dimensions": ({"x": np.zeros((2,) + (1,) * 33)}, "array-fault"),
    "no name": ({"": np.zeros(2)}, "array-fault"),
    "a name that is not printable": ({"a\n": np.zeros(2)}, fault("array-fault", name="a\n")),
    "the name of the row number": ({"key": np.zeros(2)}, "array-named-key"),
    "text that is not Unicode": ({"x": np.array(["\ud800"])}, "array-not-unicode"),
}


@pytest.mark.parametrize(("arrays", "error"), IN_MEMORY.values(), ids=IN_MEMORY)
def test_arrays_that_cannot_be_stored_are_refused(arrays, error, stage):
    with raises(InputError, error):
        examples(stage(Arrays(arrays)))


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (np.zeros((2, 2), np.uint64), fault("list-dtype", name="x", dtype="uint64")),
        (np.zeros((2, 2), np.float64), fault("list-dtype", name="x", dtype="float64")),
        (np.zeros(2, "S3"), fault("list-of-strings", name="x")),
        (np.zeros(2, "U3"), fault("list-of-strings", name="x")),
        (None, fault("list-unknown", unknown="x")),
    ],
)
def test_what_no_list_of_numbers_holds_is_refused(array, error, stage):
    arrays = {"y": np.zeros(2)} if array is None else {"x": array}
    with raises(InputError, error):
        stage(Arrays(arrays, lists=("x",))).listing()


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


CHUNKS = {
    "none": ([], "chunks-none"),
    "another name": ([{"x": np.zeros(2)}, {"y": np.zeros(2)}], fault("chunk-names", found="y", wanted="x")),
    "another dtype": ([{"x": np.zeros(2)}, {"x": np.zeros(2, np.float32)}], "chunk-shape"),
    "another shape": ([{"x": np.zeros((2, 3))}, {"x": np.zeros((2, 4))}], "chunk-shape"),
    "a single value": ([{"x": np.float32(1)}], "npy-single"),
    "objects": ([{"x": np.array([None])}], "npy-objects"),
}


@pytest.mark.parametrize(("chunks", "error"), CHUNKS.values(), ids=CHUNKS)
def test_chunks_that_do_not_fit_are_refused(chunks, error, tmp_path):
    with raises(InputError, error):
        stage_arrays(iter(chunks), tmp_path, preview=False)


def test_an_empty_chunk_adds_no_rows(stage):
    reader = stage(Arrays([{"x": np.zeros(0)}, {"x": np.arange(2.0)}, {"x": np.zeros(0)}, {"x": np.ones(1)}]))
    assert [struct.unpack("<d", example["x"])[0] for example in examples(reader)] == [0, 1, 1]


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


@pytest.mark.parametrize("by", ["y", "z"])
def test_only_an_array_of_scalars_can_group(by, stage):
    reader = stage(Arrays({"x": np.zeros(2), "w": np.arange(2), "y": np.zeros((2, 2))}))
    with pytest.raises(InputError, match=rf"^group_by='{by}' is not an array of scalars; these are x, w$"):
        reader.groups(reader.listing(), by)
    tensors = stage(Arrays({"y": np.zeros((2, 2))}))
    with pytest.raises(InputError, match=rf"^group_by='{by}' is not an array of scalars; these are none$"):
        tensors.groups(tensors.listing(), by)


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
