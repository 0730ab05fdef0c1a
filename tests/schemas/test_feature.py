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


@pytest.mark.parametrize("dtype", sorted(set(ITEM_SIZES) - {"bfloat16"}))
def test_item_sizes_are_those_of_numpy(dtype):
    assert ITEM_SIZES[dtype] == np.dtype(dtype).itemsize


def test_only_numeric_dtypes_have_an_item_size_and_raw_holds_each_of_them():
    assert ITEM_SIZES["bfloat16"] == 2
    assert KINDS["raw"].dtypes == frozenset(ITEM_SIZES)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        pytest.param("int", "uint64", id="above 2^63 it does not fit Int64List"),
        pytest.param("label", "uint64", id="the same for labels"),
        pytest.param("label", "bool", id="a class is an integer"),
        pytest.param("int", "float32", id="int64 would cut the fraction off"),
        pytest.param("float", "float64", id="FloatList is float32"),
        pytest.param("float", "int32", id="above 2^24 float32 skips integers"),
        pytest.param("float", "complex64", id="a complex number is not a float"),
        pytest.param("raw", "bytes", id="strings have no fixed length"),
        pytest.param("bytes", "uint8", id="byte strings are not numbers"),
        pytest.param("image", "uint32", id="no image format has 32 bits a channel"),
        pytest.param("mask", "int64", id="nor do masks"),
    ],
)
def test_a_kind_refuses_the_dtypes_that_it_does_not_hold_exactly(kind, dtype):
    shape = {"image": (2, 2, 3), "mask": (2, 2, 1)}.get(kind, ())
    with pytest.raises(ValueError, match=rf"^dtype is '{dtype}', but kind '{kind}' can only be \w+"):
        Feature("x", kind, dtype, shape)


@pytest.mark.parametrize(
    ("kind", "wire"),
    [
        ("image", "bytes"),
        ("mask", "bytes"),
        ("label", "int64"),
        ("bytes", "bytes"),
        ("int", "int64"),
        ("float", "float"),
        ("raw", "bytes"),
    ],
)
def test_each_kind_has_its_wire_type(kind, wire):
    shape = {"image": (None, None, 3), "mask": (None, None, 1)}.get(kind, ())
    assert Feature("x", kind, min(KINDS[kind].dtypes), shape).wire == wire


def test_every_kind_has_a_row_above():
    assert set(KINDS) == {"image", "mask", "label", "bytes", "int", "float", "raw"}


FAULTS = [
    pytest.param({"name": ""}, "name", "is '', must be one or more printable", id="nothing to call it by"),
    pytest.param({"name": "a\nb"}, "name", r"is 'a\nb', must be", id="a newline breaks a report"),
    pytest.param({"name": "\udc80"}, "name", r"is '\udc80', must be", id="protobuf takes UTF-8 only"),
    pytest.param(
        {"kind": "sound"},
        "kind",
        "is 'sound', must be one of bytes, float, image, int, label, mask, raw",
        id="no row in the table",
    ),
    pytest.param(
        {"dtype": "int8"},
        "dtype",
        "is 'int8', but kind 'image' can only be uint16, uint8",
        id="not held exactly",
    ),
    pytest.param(
        {"shape": [-1, None, 3]}, "shape", "is [-1, None, 3], must have no negative", id="-1 is not unknown"
    ),
    pytest.param(
        {"shape": [None, None]}, "shape", "is [None, None], but an image is (height", id="2 numbers"
    ),
    pytest.param(
        {"kind": "mask"},
        "shape",
        "is [None, None, 3], but a mask is (height, width, 1)",
        id="one number a pixel",
    ),
    pytest.param({"shape": [4, 4, 2]}, "shape", "with 1, 3 or 4 channels", id="no decoder gives 2 channels"),
    pytest.param(
        {"kind": "raw", "shape": [None]},
        "shape",
        "is [None], but every dimension must be known for kind 'raw'",
        id="raw bytes do not determine their shape",
    ),
    *(
        pytest.param(
            {"kind": kind, "dtype": dtype, "shape": shape},
            "shape",
            f"is {shape}, but for kind '{kind}' only the shape [None] may vary",
            id=reason,
        )
        for kind, dtype, shape, reason in [
            ("bytes", "bytes", [None, None], "no dimension known"),
            ("bytes", "bytes", [None, 4], "rows of strings"),
            ("label", "int64", [None, 0], "not even a list of nothing"),
        ]
    ),
    *(
        pytest.param(
            {"kind": kind, "dtype": dtype, "shape": shape},
            "shape",
            f"is {shape}, but for kind '{kind}' only the shape [None] or [None, k] with k >= 1 may vary",
            id=reason,
        )
        for kind, dtype, shape, reason in [
            ("float", "float32", [2, None], "two lists of different lengths"),
            ("int", "int64", [None, None], "rows of different lengths"),
            ("int", "int64", [None, 0], "the number of rows of nothing is not known"),
            ("float", "float32", [None, 2, 2], "rows of rows"),
        ]
    ),
    pytest.param(
        {"kind": "raw", "shape": [1] * 33}, "shape", "has 33 dimensions; at most 32", id="NumPy takes 32"
    ),
    pytest.param(
        {"kind": "raw", "shape": [2**32, 2**31]}, "shape", "more than 2^63 - 1 elements", id="overflows int64"
    ),
    pytest.param(
        {"kind": "raw", "shape": [0, 2**62, 4]}, "shape", "more than 2^63", id="so does a part of the product"
    ),
]


@pytest.mark.parametrize(("changes", "field", "message"), FAULTS)
def test_a_faulty_feature_is_noted_with_its_place(changes, field, message):
    feature, problems = read(SOUND | changes)
    assert feature is None
    [(place, found)] = problems
    assert place == f"schema.features[0].{field}"
    assert message in found


@pytest.mark.parametrize(("changes", "field", "message"), FAULTS)
def test_a_faulty_feature_raises(changes, field, message):
    values = SOUND | changes
    with pytest.raises(ValueError, match=f"^{field} ") as caught:
        Feature(values["name"], values["kind"], values["dtype"], tuple(values["shape"]))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "shape",
    [[1] * 32, [2**63 - 1], [0], [0, 2**62]],
    ids=["32 dimensions", "2^63 - 1 elements", "no elements", "none of many"],
)
def test_the_largest_and_smallest_shapes_are_accepted(shape):
    feature, problems = read(SOUND | {"kind": "raw", "shape": shape})
    assert problems == []
    assert feature.shape == tuple(shape)


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        pytest.param(
            {"name": 3, "kind": "raw", "dtype": "bytes", "shape": [-1]},
            [
                ("name", "is 3, must be a string"),
                ("dtype", "is 'bytes', but kind 'raw' can only be"),
                ("shape", "is [-1], must have no negative"),
            ],
            id="a wrong type hides no fault of another field",
        ),
        pytest.param(
            {"name": "x", "kind": "raw", "dtype": "uint8", "shape": [True, "2", 2.0, None]},
            [
                ("shape[0]", "is True, must be an integer or null"),
                ("shape[1]", "is '2', must be an integer or null"),
                ("shape[2]", "is 2.0, must be an integer or null"),
            ],
            id="each dimension is checked, and the rest of the shape is not judged",
        ),
        pytest.param(
            {"kind": 1, "units": "m"},
            [
                ("units", "is not a field of this format"),
                ("name", "is missing"),
                ("kind", "is 1, must be a string"),
                ("dtype", "is missing"),
                ("shape", "is missing"),
            ],
            id="missing and unknown fields",
        ),
    ],
)
def test_all_problems_of_a_feature_are_noted_at_once(document, problems):
    feature, found = read(document)
    assert feature is None
    assert [place for place, _ in found] == [f"schema.features[0].{field}" for field, _ in problems]
    for (_, message), (_, expected) in zip(found, problems, strict=True):
        assert message.startswith(expected)


def test_all_faults_of_a_feature_are_in_its_error():
    with pytest.raises(ValueError, match=r"^name is '', .*; dtype is 'bytes', .*; shape is \[-1\], "):
        Feature("", "raw", "bytes", (-1,))


@pytest.mark.parametrize(
    ("feature", "elements"),
    [
        (Feature("x", "raw", "int16", (2, 3)), 6),
        (Feature("x", "raw", "int16"), 1),
        (Feature("x", "int", "int16", (2, 0)), 0),
        (Feature("x", "image", "uint8", (2, 3, 3)), 1),
        (Feature("x", "image", "uint8", (None, None, 3)), 1),
    ],
    ids=["a product", "a scalar is one", "an empty tensor", "an image is one string", "of any size"],
)
def test_the_number_of_elements_is_that_of_the_record(feature, elements):
    assert feature.num_elements == elements


@pytest.mark.parametrize("kind", ["label", "bytes", "int", "float"])
def test_a_list_of_any_length_has_no_number_of_elements(kind):
    feature = Feature("x", kind, min(KINDS[kind].dtypes), (None,))
    assert feature.is_ragged
    with pytest.raises(
        ValueError, match=r"feature 'x' has no fixed number of elements: its shape is \(None,\)"
    ):
        _ = feature.num_elements


@pytest.mark.parametrize(("shape", "elements"), [((None,), 1), ((None, 1), 1), ((None, 4), 4)])
def test_a_ragged_feature_has_rows_of_so_many_elements(shape, elements):
    feature = Feature("x", "float", "float32", shape)
    assert (feature.is_ragged, feature.row_elements) == (True, elements)


@pytest.mark.parametrize(
    "feature",
    [
        Feature("x", "int", "int64", (3,)),
        Feature("x", "image", "uint8", (None, None, 3)),
        Feature("x", "raw", "int8"),
    ],
    ids=["a fixed length", "pixels vary, but are one string", "a scalar"],
)
def test_no_other_shape_is_ragged(feature):
    assert not feature.is_ragged


def test_a_raw_value_has_a_length_in_bytes():
    assert Feature("x", "raw", "complex128", (2, 3)).num_bytes == 96


@pytest.mark.parametrize("kind", ["image", "bytes", "int"])
def test_a_value_of_another_kind_has_no_length_in_bytes(kind):
    shape = (2, 3, 3) if kind == "image" else (2,)
    with pytest.raises(ValueError, match=f"feature 'x' is of kind '{kind}'; only 'raw' has a fixed length"):
        _ = Feature("x", kind, min(KINDS[kind].dtypes), shape).num_bytes
