"""Structured arrays: one feature per field, for any form of input and any memory layout of the fields."""

import os
import struct
import tracemalloc

import numpy as np
import pytest

from tests.errors import fault, raises
from tfshards.prep import Arrays
from tfshards.prep.sources.arrays.mapped import Layout, MappedFile
from tfshards.schemas import Feature, InputError, OptionsError

from .test_arrays import from_chunks, from_memory, from_npy, from_npz

ITEM = np.dtype([("number", "<i4"), ("box", "<f4", (2, 2)), ("name", "S3")])
ARRAY = np.zeros(4, ITEM)
ARRAY["number"] = [3, -1, 2**31 - 1, 0]
ARRAY["box"] = np.arange(16).reshape(4, 2, 2)
ARRAY["name"] = [b"a", b"", b"\xff\0b", b"abc"]


def table(source: Arrays, folder) -> dict[str, tuple[Feature, list[object]]]:
    """Return each feature except the key, and its values."""
    folder.mkdir()
    reader = source.stage(folder)
    listing = reader.listing()
    outcomes = reader.read(listing.rows(np.arange(listing.num_examples)), listing.schema)
    columns = zip(*(outcome.values for outcome in outcomes), strict=True)
    return {
        feature.name: (feature, list(column))
        for feature, column in zip(listing.schema.features, columns, strict=True)
        if feature.name != "key"
    }


def raw(array: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in array.astype(array.dtype.newbyteorder("<"))]


def from_fields(array: np.ndarray, folder) -> Arrays:
    return Arrays(array)


def from_named_npy(array: np.ndarray, folder) -> Arrays:
    np.save(folder / "y.npy", array)
    return Arrays.open([f"x={folder}/y.npy"])


def from_bare_npy(array: np.ndarray, folder) -> Arrays:
    np.save(folder / "x.npy", array)
    return Arrays.open([f"{folder}/x.npy"])


def from_structured_chunks(array: np.ndarray, folder) -> Arrays:
    return Arrays(iter([array[:1], array[1:]]))


def from_bare_parts(array: np.ndarray, folder) -> Arrays:
    np.save(folder / "x-0.npy", array[:1])
    np.save(folder / "x-1.npy", np.asfortranarray(array[1:]))
    return Arrays.open([f"{folder}/x-1.npy", f"{folder}/x-0.npy"])


ORIGINS = {
    from_memory: "x/",
    from_npy: "x/",
    from_named_npy: "x/",
    from_npz: "x/",
    from_chunks: "x/",
    from_fields: "",
    from_bare_npy: "",
    from_structured_chunks: "",
    from_bare_parts: "",
}
LAYOUTS = {
    "packed": ARRAY,
    "aligned, with padding": ARRAY.astype(np.dtype(ITEM.descr, align=True)),
    "big-endian": ARRAY.astype(ITEM.newbyteorder(">")),
    "a record array": ARRAY.view(np.recarray),
    "every second": np.repeat(ARRAY, 2)[::2],
    "with titles": ARRAY.astype([(("how many", "number"), "<i4"), ("box", "<f4", (2, 2)), ("name", "S3")]),
}


@pytest.mark.parametrize(("origin", "prefix"), ORIGINS.items())
@pytest.mark.parametrize("array", LAYOUTS.values(), ids=LAYOUTS)
def test_a_field_is_a_feature_prefixed_with_the_name_of_the_array_if_given(array, origin, prefix, tmp_path):
    assert table(origin(array, tmp_path), tmp_path / "staged") == {
        f"{prefix}number": (Feature(f"{prefix}number", "int", "int32"), [3, -1, 2**31 - 1, 0]),
        f"{prefix}box": (Feature(f"{prefix}box", "raw", "float32", (2, 2)), raw(ARRAY["box"])),
        f"{prefix}name": (Feature(f"{prefix}name", "bytes", "bytes"), [b"a", b"", b"\xff\0b", b"abc"]),
    }


NESTED = np.zeros((3,), [("a", [("b", ">f8"), ("c", [("d", "u1"), ("e", "<i2", 2)], (3,))]), ("f", "?")])
NESTED.view(np.uint8)[:] = np.arange(NESTED.nbytes) % 2


@pytest.mark.parametrize(("origin", "prefix"), ORIGINS.items())
def test_nested_fields_are_joined_by_slashes_and_have_the_outer_shape(origin, prefix, tmp_path):
    found = table(origin(NESTED, tmp_path), tmp_path / "staged")
    assert {name: (feature.dtype, feature.shape, values) for name, (feature, values) in found.items()} == {
        f"{prefix}a/b": ("float64", (), raw(NESTED["a"]["b"])),
        f"{prefix}a/c/d": ("uint8", (3,), raw(NESTED["a"]["c"]["d"])),
        f"{prefix}a/c/e": ("int16", (3, 2), raw(NESTED["a"]["c"]["e"])),
        f"{prefix}f": ("bool", (), raw(NESTED["f"])),
    }


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("origin", [from_memory, from_npy, from_npz, from_chunks])
def test_arrays_of_structures_have_the_axes_of_the_array_first(origin, order, tmp_path):
    array = np.resize(ARRAY, (4, 3)).copy(order)
    found = table(origin(array, tmp_path), tmp_path / "staged")
    assert found["x/box"] == (Feature("x/box", "raw", "float32", (3, 2, 2)), raw(array["box"]))
    assert found["x/name"][1] == array["name"].tolist()


def test_fields_may_overlap_in_memory(tmp_path):
    both = np.dtype({"names": ["all", "low"], "formats": ["<u4", "<u2"], "offsets": [0, 0], "itemsize": 7})
    array = np.zeros(2, both)
    array["all"] = [0x10002, 3]
    found = table(Arrays(array), tmp_path / "staged")
    assert [found[name][1] for name in ("all", "low")] == [[0x10002, 3], [2, 3]]


@pytest.mark.parametrize("origin", [from_memory, from_npy])
def test_a_field_of_zero_bytes_has_no_values(origin, tmp_path):
    array = np.zeros(2, [("a", "u1"), ("nothing", "f4", (0,)), ("empty", "S0")])
    found = table(origin(array, tmp_path), tmp_path / "staged")
    assert found["x/nothing"] == (Feature("x/nothing", "raw", "float32", (0,)), [b"", b""])
    assert found["x/empty"][1] == [b"", b""]


def test_field_names_outside_of_latin_1_are_read(tmp_path):
    array = np.array([(1, 2)], [("猫", "i4"), ("\\u732b", "i4")])
    with pytest.warns(UserWarning, match="format 3.0"):
        np.save(tmp_path / "x.npy", array)
    assert (tmp_path / "x.npy").read_bytes()[6] == 3
    found = table(Arrays.open([f"{tmp_path}/x.npy"]), tmp_path / "staged")
    assert {name: values for name, (_, values) in found.items()} == {"猫": [1], "\\u732b": [2]}


def test_a_field_named_label_holds_the_classes_and_other_fields_may_be_lists(tmp_path):
    array = np.array([(1, 0.5), (0, 2.0)], [("label", "u1"), ("weight", "f4")])
    np.save(tmp_path / "x.npy", array)
    reader = Arrays.open([f"{tmp_path}/x.npy"], lists=("weight",)).stage(tmp_path)
    listing = reader.listing()
    assert listing.labels.tolist() == [1, 0]
    assert [feature.kind for feature in listing.schema.features] == ["label", "float", "bytes"]
    assert reader.groups(listing, "label") == [b"1", b"0"]
    assert listing.sizes.tolist() == [5, 5]


def test_a_structured_file_is_mapped_rather_than_copied(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(300_000, ITEM))
    (tmp_path / "staged").mkdir()
    tracemalloc.start()
    try:
        reader = Arrays({"x": tmp_path / "x.npy"}).stage(tmp_path / "staged")
        block = reader.arrays["x/box"].take(np.array([299_999]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert block.shape == (1, 2, 2)
    assert peak < 200_000
    assert list((tmp_path / "staged").iterdir()) == [tmp_path / "staged" / "0"]
    assert all(column.parts[0].path == str(tmp_path / "x.npy") for column in reader.arrays.values())
    os.utime(tmp_path / "x.npy", ns=(1, 1))
    with raises(InputError, "changed-file"):
        reader.arrays["x/box"].take(np.array([0]))


def test_equal_arrays_have_the_same_identity_despite_their_padding(tmp_path):
    identities = []
    for number, padding in enumerate((0, 255)):
        array = np.zeros(3, np.dtype([("a", "u1"), ("b", "f8")], align=True))
        array.view(np.uint8)[:] = padding
        array["a"], array["b"] = 1, 2
        (tmp_path / str(number)).mkdir()
        identities.append(Arrays(array).stage(tmp_path / str(number)).listing().identity)
    assert identities[0] == identities[1]


def test_a_file_truncated_between_inspection_and_mapping_is_reported(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(4, np.uint8))
    os.truncate(tmp_path / "x.npy", (tmp_path / "x.npy").stat().st_size - 1)
    array = MappedFile(str(tmp_path / "x.npy"), Layout("|u1", (4,)), ())
    with pytest.raises(InputError, match=r"x\.npy: cannot be mapped into memory: "):
        array.take(np.arange(4))


FAULTS = {
    "objects": (np.zeros(2, [("a", "O")]), "npy-objects"),
    "objects within": (np.zeros(2, [("a", [("b", "O")])]), "npy-objects"),
    "dates": (np.zeros(2, [("a", "M8[s]")]), fault("array-dtype", name="x/a", dtype="datetime64[s]")),
    "one structure": (np.zeros((), [("a", "i4")]), "npy-single"),
    "no fields": (np.zeros(2, []), "array-no-fields"),
    "a name twice": (np.zeros(2, [("a/b", "i4"), ("a", [("b", "i4")])]), fault("two-features", name="x/a/b")),
    "a name that is not printable": (np.zeros(2, [("a\n", "i4")]), fault("array-fault", name="x/a\n")),
}


@pytest.mark.parametrize("origin", [from_memory, from_npy, from_chunks])
@pytest.mark.parametrize(("array", "error"), FAULTS.values(), ids=FAULTS)
def test_structures_that_cannot_be_stored_are_refused(array, error, origin, tmp_path):
    if origin is from_chunks and array.ndim == 0:
        pytest.skip("has no chunks")
    if origin is from_npy and array.dtype.names == ():
        header = b"{'descr': [], 'fortran_order': False, 'shape': (2,)}\n"
        (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
        source = Arrays({"x": tmp_path / "x.npy"})
    else:
        source = origin(array, tmp_path)
    with raises(InputError, error):
        table(source, tmp_path / "staged")


def test_a_field_named_key_requires_the_name_of_the_array_as_prefix(tmp_path):
    array = np.zeros(2, [("key", "i4")])
    np.save(tmp_path / "x.npy", array)
    with raises(InputError, "array-named-key"):
        table(Arrays.open([f"{tmp_path}/x.npy"]), tmp_path / "bare")
    assert list(table(Arrays.open([f"x={tmp_path}/x.npy"]), tmp_path / "named")) == ["x/key"]


def test_names_that_are_missing_or_repeated_are_refused(tmp_path):
    with raises(OptionsError, "arrays-no-names"):
        Arrays(np.zeros(3))
    with raises(OptionsError, "arrays-empty"):
        Arrays({})
    with raises(InputError, "chunk-type", number=0):
        Arrays(iter([np.zeros(3)])).stage(tmp_path)
    with raises(InputError, "two-features", name="x/a"):
        table(Arrays({"x": np.zeros(2, [("a", "i4")]), "x/a": np.zeros(2)}), tmp_path / "staged")
