"""Inference of a schema from records: kinds, shapes, classes, and records that have no common schema."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.errors import raises
from tests.pictures import image_file
from tfshards.prep.adoption import infer as infer_module
from tfshards.prep.adoption.infer import Inferred, infer
from tfshards.prep.adoption.seen import FeatureRoles, Findings
from tfshards.prep.imaging.formats import image_shape
from tfshards.prep.records.example import example_encoder
from tfshards.prep.records.values import parse_record
from tfshards.schemas import Feature, Manifest, OptionsError, Schema, Split, Totals

ELEMENTS = {int: st.integers(-(2**63), 2**63 - 1), float: st.floats(width=32), bytes: st.binary(max_size=20)}
KINDS = {int: ("int", "int64"), float: ("float", "float32"), bytes: ("bytes", "bytes")}


def picture(mode: str = "RGB", size: tuple[int, int] = (5, 4), name: str = "PNG") -> bytes:
    """Return an encoded image; ``size`` is width and height."""
    return image_file(Image.new(mode, size), name)


def record(**values: object) -> bytes:
    """Return the bytes of an example; lists may have any length; empty ones are lists of integers."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in values.items()}
    return record_of(lists, {name: type((elements or [0])[0]) for name, elements in lists.items()})


def record_of(lists, types) -> bytes:
    schema = Schema(tuple(Feature(name, *KINDS[types[name]], (None,)) for name in lists))
    return b"".join(example_encoder(schema)(list(lists.values())))


def listless(*names: str) -> bytes:
    """Return the bytes of an example whose features have no list at all, as TFX marks missing values."""
    entries = [b"\x0a" + bytes([len(name)]) + name.encode() + b"\x12\x00" for name in names]
    features = b"".join(b"\x0a" + bytes([len(entry)]) + entry for entry in entries)
    return b"\x0a" + bytes([len(features)]) + features


def found_in(*records: bytes, roles: FeatureRoles | None = None, path: str = "a") -> Findings:
    found = Findings(roles or FeatureRoles())
    for number, data in enumerate(records):
        found.look(path, number, 100 * number, data)
    return found


def inferred(*records: bytes, roles: FeatureRoles | None = None) -> Inferred:
    found = found_in(*records, roles=roles)
    assert found.problems == []
    return infer(found)


@pytest.mark.parametrize(
    ("values", "feature", "reason"),
    [
        ([1, 2], Feature("x", "int", "int64"), "one integer in all records"),
        ([-1, 2**63 - 1], Feature("x", "int", "int64"), "any int64"),
        ([0.5, 1.0], Feature("x", "float", "float32"), "one float"),
        ([b"a", b""], Feature("x", "bytes", "bytes"), "one string, an empty one too"),
        ([[1, 2], [3, 4]], Feature("x", "int", "int64", (2,)), "as many in all records"),
        ([[1, 2], [3]], Feature("x", "int", "int64", (None,)), "numbers that differ"),
        ([[], [3]], Feature("x", "int", "int64", (None,)), "none in the first record"),
        ([[5], []], Feature("x", "int", "int64", (None,)), "none in the last"),
        ([[b"a", b"b"], [b"c", b""]], Feature("x", "bytes", "bytes", (2,)), "strings"),
        ([picture(), picture()], Feature("x", "image", "uint8", (4, 5, 3)), "images of one size"),
        ([picture(), picture(size=(5, 6))], Feature("x", "image", "uint8", (None, 5, 3)), "of one width"),
        ([picture("L", name="JPEG"), picture("L")], Feature("x", "image", "uint8", (4, 5, 1)), "gray"),
        ([picture("L"), picture()], Feature("x", "image", "uint8", (4, 5, 3)), "gray is delivered as color"),
        ([picture(name="WEBP")], Feature("x", "image", "uint8", (None, None, 3)), "header that is not read"),
        ([picture(), b"no image"], Feature("x", "bytes", "bytes"), "one that is not an image"),
    ],
)
def test_the_feature_is_inferred_from_the_values(values, feature, reason):
    made = inferred(*(record(x=value, other=1) for value in values))
    assert made.problems == (), reason
    assert made.features == (Feature("other", "int", "int64"), feature), reason


@pytest.mark.parametrize(
    ("names", "roles", "label", "reason"),
    [
        (("x", "label"), FeatureRoles(), "label", "the usual name"),
        (("class", "x"), FeatureRoles(), "class", "the other one"),
        (("image/class/label", "x"), FeatureRoles(), "image/class/label", "as ImageNet's scripts have it"),
        (("a/label", "label"), FeatureRoles(), "label", "the plain name before others"),
        (("x", "label"), FeatureRoles(label="x"), "x", "given by the option"),
        (("x", "labels", "class_id"), FeatureRoles(), None, "other names are none"),
    ],
)
def test_integers_named_label_are_classes(names, roles, label, reason):
    made = inferred(*(record(**dict.fromkeys(names, number)) for number in range(3)), roles=roles)
    assert (made.label.name if made.label else None) == label, reason


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([0, -1], "negative"),
        ([[0, 1], [1, 0]], "several a record"),
        ([0.5, 1.0], "no integers"),
        ([0, 1, 2, 3], "too many different ones"),
    ],
)
def test_a_feature_named_label_is_not_a_label_if_its_values_are_not_classes(values, reason, monkeypatch):
    monkeypatch.setattr(infer_module, "MAX_CLASSES", 3)
    assert inferred(*(record(label=value) for value in values)).label is None, reason


def test_the_label_option_accepts_any_integers(monkeypatch):
    monkeypatch.setattr(infer_module, "MAX_CLASSES", 3)
    values = [-1, *range(5)]
    roles = FeatureRoles(label="label")
    found = found_in(*(record(label=value) for value in values), roles=roles)
    assert infer(found).label == Feature("label", "label", "int64")
    lists = inferred(record(label=[1, 2]), record(label=[]), roles=roles)
    assert lists.label == Feature("label", "label", "int64", (None,))


@pytest.mark.parametrize(
    ("records", "roles", "message"),
    [
        (
            [record(x=1, y=2), record(y=2)],
            {"label": "x"},
            "and not in a, record 1 at byte 100; every",
        ),
        ([record(y=2), record(key=b"a", y=2)], {}, "and not in a, record 0 at byte 0; every"),
        ([listless("x")], {}, "feature 'x': has no list in any record"),
        ([record(x=1)], {"label": "y"}, "feature 'y': is not in any record; the features are 'x'"),
        ([record(x=b"1")], {"label": "x"}, "given as label=, but a, record 0 at byte 0 holds no integers"),
        ([record(x=1)], {"images": ("x",)}, "in images=, but a, record 0 at byte 0 holds no byte strings"),
        ([record(x=picture()), record(x=b"BM")], {"images": ("x",)}, "a, record 1 at byte 100 holds no JPEG"),
        ([record(x=[b"", b""])], {"images": ("x",)}, "in images=, but a, record 0 at byte 0 holds no JPEG"),
        ([record(key=b"a"), record(key=b"b"), record(key=b"a")], {}, "only 2 different values in 3 records"),
        ([record(x=1)], {"drop": ("x",)}, "schema: no feature is left; leave fewer out with drop="),
    ],
)
def test_records_without_a_common_schema_are_reported(records, roles, message):
    (problem,) = inferred(*records, roles=FeatureRoles(**roles)).problems
    assert message in str(problem)


def test_an_invalid_feature_name_is_reported():
    # written by hand, since the encoder does not accept such a name
    data = bytes.fromhex("0a0d 0a0b 0a01 0a 1206 1a04 0a02 0102".replace(" ", ""))
    (problem,) = inferred(data).problems
    assert r"name is '\n', must be one or more printable characters; leave it out with drop=" in str(problem)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no protocol buffer", "is not a tf.train.Example"),
        (b"", "has no features; only tf.train.Example with features"),
        (b"\x12\x00", "is a tf.train.SequenceExample; only"),
        (record(x=list(range(200))) + b"\x18\x01", "has a field 3; only tf.train.Example"),
        (record(x=0.5), "the feature 'x' holds floats, but integers in a, record 0 at byte 0"),
        (record(x=b""), "the feature 'x' holds byte strings, but integers in a, record 0 at byte 0"),
        (record_of({"x": []}, {"x": float}), "the feature 'x' is empty and holds floats, but integers in a"),
    ],
)
def test_a_record_that_is_not_an_example_is_reported(data, message):
    found = found_in(record(x=1), data, record(x=3))
    (problem,) = found.problems
    assert str(problem).startswith("a: record 1 at byte 100: ")
    assert message in str(problem)


def test_the_first_faults_of_a_file_are_listed_and_the_others_counted():
    found = found_in(*[b""] * 50)
    assert len(found.problems) == 20
    assert str(found.all_problems()[-1]) == "a: and 30 more problems"


def test_shards_that_contradict_each_other_are_both_named():
    together = Findings(FeatureRoles())
    together.join(found_in(record(x=1), path="a"))
    together.join(found_in(record(x=0.5), path="b"))
    together.join(found_in(record(x=b""), path="c"))
    (problem,) = infer(together).problems
    assert "holds floats, but integers in a, record 0 at byte 0 (found in b, record 0 at byte 0)" in str(
        problem
    )


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        ([picture(), b"x"], "'x' is an image in 1 of 2 records, not in a, record 1 at byte 100; it is kept"),
        ([picture()], "the images in 'x' are kept as they are"),
        ([bytes(784)], None),
        ([1], None),
    ],
)
def test_suspicious_features_are_reported(values, warning):
    made = inferred(*(record(x=value) for value in values))
    assert [warning in text for text in made.warnings] == ([True] if warning else [])


def test_roles_that_contradict_each_other_are_refused():
    with raises(OptionsError, "feature-roles-repeated", name="x", times=2):
        FeatureRoles(label="x", drop=("x",))


@pytest.mark.parametrize(
    ("data", "shape", "reason"),
    [
        (b"", None, "nothing"),
        (b"GIF89a", (None, None, 3), "a format whose header is not read"),
        (b"\x89PNG\r\n\x1a\n", (None, None, 3), "truncated after the signature"),
        (b"\xff\xd8\xff", (None, None, 3), "truncated after the signature"),
        (b"\xff\xd8\xff\xda" + bytes(20), (None, None, 3), "a scan without a frame"),
        (b"\xff\xd8\xff\xff\xc0\x00\x0b\x08\x00\x02\x00\x03\x01" + bytes(9), (2, 3, 1), "padding"),
        (b"\x00\x00\x00\x0cjP  \r\n\x87\n", None, "JPEG 2000, which TensorFlow does not read"),
    ],
)
def test_an_image_header_is_read_as_far_as_possible(data, shape, reason):
    assert image_shape(data) == shape, reason


@pytest.mark.parametrize(
    ("records", "shape", "reason"),
    [
        ([record(x=1), listless("x")], (None,), "one value or none"),
        ([listless("x"), record(x=[1, 2])], (None,), "several or none"),
        ([record(x=[]), listless("x")], (None,), "an empty list or none"),
        ([record(x=[]), record(x=[])], (0,), "only empty lists"),
    ],
)
def test_a_feature_without_a_list_in_some_records_has_any_length(records, shape, reason):
    for given_records in (records, records[::-1]):
        assert inferred(*given_records).features == (Feature("x", "int", "int64", shape),), reason


@given(
    st.dictionaries(
        st.sampled_from(["x", "label", "y/label"]), st.sampled_from([int, float, bytes]), min_size=1
    ).flatmap(
        lambda types: st.tuples(
            st.just(types),
            st.lists(
                st.fixed_dictionaries(
                    {name: st.lists(ELEMENTS[kind], max_size=3) for name, kind in types.items()}
                ),
                min_size=1,
                max_size=8,
            ),
        )
    ),
    st.integers(0, 8),
)
def test_the_inferred_schema_fits_and_does_not_depend_on_the_shards(drawn, cut):
    types, rows = drawn
    records = [record_of(row, types) for row in rows]
    made = inferred(*records)
    together = Findings(FeatureRoles())
    for start, end in ((0, cut), (cut, len(records))):
        together.join(found_in(*records[start:end]))
    again = infer(together)
    assert (again.features, again.problems) == (made.features, made.problems) == (made.features, ())
    number = len(records)
    manifest = Manifest("d", "01234567", Schema(made.features), {"a": Split(())}, Totals(number, number))
    for data, row in zip(records, rows, strict=True):
        values, fault = parse_record(data, manifest)
        assert fault is None
        for name, elements in row.items():
            assert np.array_equal(values[name], elements, equal_nan=types[name] is float)
