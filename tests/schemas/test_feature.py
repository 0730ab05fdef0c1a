import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfshards.schemas import Feature
from tfshards.schemas.json_reader import ObjectReader
from tfshards.schemas.schema import ITEM_SIZES, KINDS

SOUND = {"name": "image", "kind": "image", "dtype": "uint8", "shape": [None, None, 3]}


def read(document):
    """Return the feature in the document and the problems as (place, message)."""
    reader = ObjectReader(document, "schema.features[0]")
    feature = Feature.read(reader)
    return feature, [(problem.place, problem.message) for problem in reader.problems]


@st.composite
def features(draw):
    kind = draw(st.sampled_from(sorted(KINDS)))
    dtype = draw(st.sampled_from(sorted(KINDS[kind].dtypes)))
    dim = st.integers(0, 9)
    if KINDS[kind].channels:
        size = st.none() | dim
        shape = (draw(size), draw(size), draw(st.sampled_from(KINDS[kind].channels)))
    else:
        fixed = st.lists(dim, max_size=4).map(tuple)
        lists = [(None,)] * KINDS[kind].lists + [(None, 1), (None, 4)] * KINDS[kind].rows
        shape = draw(fixed | st.sampled_from(lists) if lists else fixed)
    return Feature(draw(st.sampled_from(["image", "größe", "a b", "a/b.c"])), kind, dtype, shape)


@given(features())
def test_any_feature_is_read_back_from_its_json(feature):
    assert read(feature.to_json()) == (feature, [])


def test_item_sizes_are_those_of_numpy_and_raw_holds_each_dtype():
    assert all(ITEM_SIZES[dtype] == np.dtype(dtype).itemsize for dtype in set(ITEM_SIZES) - {"bfloat16"})
    assert ITEM_SIZES["bfloat16"] == 2
    assert KINDS["raw"].dtypes == frozenset(ITEM_SIZES)


def test_each_kind_has_its_wire_type():
    wires = {"image": "bytes", "mask": "bytes", "label": "int64", "bytes": "bytes", "int": "int64"}
    assert {name: kind.wire for name, kind in KINDS.items()} == wires | {"float": "float", "raw": "bytes"}


# the changes of a sound feature, the field that is reported, and a part of its problem
FAULTS = {
    "no name": ({"name": ""}, "name", "''"),
    "a newline breaks a report": ({"name": "a\nb"}, "name", r"'a\nb'"),
    "protobuf takes UTF-8 only": ({"name": "\udc80"}, "name", r"'\udc80'"),
    "no row in the table": ({"kind": "sound"}, "kind", "bytes, float, image, int, label, mask, raw"),
    "not held exactly": ({"dtype": "int8"}, "dtype", "uint16, uint8"),
    "-1 is not unknown": ({"shape": [-1, None, 3]}, "shape", "[-1, None, 3]"),
    "an image of 2 numbers": ({"shape": [None, None]}, "shape", "[None, None]"),
    "a mask has one number per pixel": ({"kind": "mask"}, "shape", "(height, width, 1)"),
    "no decoder gives 2 channels": ({"shape": [4, 4, 2]}, "shape", "1, 3 or 4"),
    "raw bytes have no shape": ({"kind": "raw", "shape": [None]}, "shape", "[None]"),
    "NumPy takes 32 dimensions": ({"kind": "raw", "shape": [1] * 33}, "shape", "33 dimensions"),
    "overflows int64": ({"kind": "raw", "shape": [2**32, 2**31]}, "shape", "2^63"),
    "a part overflows int64": ({"kind": "raw", "shape": [0, 2**62, 4]}, "shape", "2^63"),
} | {
    f"{kind} {shape}": ({"kind": kind, "dtype": dtype, "shape": shape}, "shape", str(shape))
    for kind, dtype, shape in [
        ("bytes", "bytes", [None, None]),
        ("bytes", "bytes", [None, 4]),
        ("label", "int64", [None, 0]),
        ("float", "float32", [2, None]),
        ("int", "int64", [None, None]),
        ("int", "int64", [None, 0]),
        ("float", "float32", [None, 2, 2]),
    ]
}
# above 2^63 and 2^24 integers do not fit int64 and float32, which would also cut fractions off
FAULTS |= {
    f"{kind} of {dtype}": ({"kind": kind, "dtype": dtype, "shape": []}, "dtype", f"'{dtype}'")
    for kind, dtypes in {
        "int": ("uint64", "float32"),
        "label": ("uint64", "bool"),
        "float": ("float64", "int32", "complex64"),
        "raw": ("bytes",),
        "bytes": ("uint8",),
    }.items()
    for dtype in dtypes
}


@pytest.mark.parametrize(("changes", "field", "message"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_feature_is_noted_with_its_place_and_raises(changes, field, message):
    values = SOUND | changes
    feature, [(place, found)] = read(values)
    assert (feature, place) == (None, f"schema.features[0].{field}")
    assert message in found
    with pytest.raises(ValueError, match=f"^{field} ") as caught:
        Feature(values["name"], values["kind"], values["dtype"], tuple(values["shape"]))
    assert message in str(caught.value)


@pytest.mark.parametrize("shape", [[1] * 32, [2**63 - 1], [0], [0, 2**62]], ids=str)
def test_the_largest_and_smallest_shapes_are_accepted(shape):
    feature, problems = read(SOUND | {"kind": "raw", "shape": shape})
    assert (problems, feature.shape) == ([], tuple(shape))


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        # a wrong type hides no fault of another field
        ({"name": 3, "kind": "raw", "dtype": "bytes", "shape": [-1]}, ["name", "dtype", "shape"]),
        # each dimension is checked, and the rest of the shape is not judged
        (SOUND | {"shape": [True, "2", 2.0, None]}, ["shape[0]", "shape[1]", "shape[2]"]),
        ({"kind": 1, "units": "m"}, ["units", "name", "kind", "dtype", "shape"]),
    ],
)
def test_all_problems_of_a_feature_are_noted_at_once(document, fields):
    feature, found = read(document)
    assert (feature, [place for place, _ in found]) == (None, [f"schema.features[0].{f}" for f in fields])


def test_all_faults_of_a_feature_are_in_its_error():
    with pytest.raises(ValueError, match=r"^name is '', .*; dtype is 'bytes', .*; shape is \[-1\], "):
        Feature("", "raw", "bytes", (-1,))


@pytest.mark.parametrize(
    ("kind", "shape", "elements", "row"),
    [
        ("raw", (2, 3), 6, 3),
        ("raw", (), 1, 1),
        ("int", (2, 0), 0, 0),
        ("image", (2, 3, 3), 1, 1),
        # pixels vary, but are one string
        ("image", (None, None, 3), 1, 1),
        ("label", (None,), None, 1),
        ("bytes", (None,), None, 1),
        ("float", (None, 4), None, 4),
        ("int", (None, 1), None, 1),
    ],
)
def test_the_number_of_elements_is_that_of_the_record(kind, shape, elements, row):
    feature = Feature("x", kind, min(KINDS[kind].dtypes), shape)
    assert (feature.is_ragged, feature.row_elements) == (elements is None, row)
    if elements is None:
        with pytest.raises(ValueError, match="feature 'x' has no fixed number of elements"):
            _ = feature.num_elements
    else:
        assert feature.num_elements == elements


def test_only_a_raw_value_has_a_length_in_bytes():
    assert Feature("x", "raw", "complex128", (2, 3)).num_bytes == 96
    with pytest.raises(ValueError, match="feature 'x' is of kind 'int'; only 'raw' has a fixed length"):
        _ = Feature("x", "int", "int8", (2,)).num_bytes
