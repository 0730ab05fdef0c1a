import re

import pytest

from tfshards.schemas import Feature, Schema
from tfshards.schemas.json_reader import ObjectReader

IMAGE = Feature("image", "image", "uint8", (None, None, 3))
LABEL = Feature("label", "label", "int64")
KEY = Feature("key", "bytes", "bytes")
TAGS = Feature("tags", "label", "int64", (3,))


def read(document):
    """Return the schema in the document and the problems as (place, message)."""
    reader = ObjectReader(document, "schema")
    schema = Schema.read(reader)
    return schema, [(problem.place, problem.message) for problem in reader.problems]


@pytest.mark.parametrize(
    "schema",
    [
        Schema((IMAGE, LABEL, KEY), ("cat", "dog")),
        Schema((KEY, IMAGE)),
        # order is kept, and names need not be UTF-8
        Schema((LABEL,), ("b", "a", "gr\udcfc\u00df")),
        Schema((TAGS,), ("a", "b")),
    ],
)
def test_a_schema_is_read_back_from_its_json(schema):
    assert read(schema.to_json()) == (schema, [])


def test_a_schema_can_be_indexed_by_name():
    schema = Schema((IMAGE, LABEL, KEY))
    assert schema.names == ("image", "label", "key")
    assert schema["label"] is LABEL
    with pytest.raises(KeyError, match="no feature 'weight'; the features are image, label, key"):
        schema["weight"]


@pytest.mark.parametrize(
    ("features", "label"),
    [
        ((IMAGE, LABEL), LABEL),
        # neither its name nor several labels make it one
        ((Feature("label", "int", "int64"), KEY), None),
        ((TAGS, KEY), None),
        ((TAGS, LABEL), LABEL),
    ],
)
def test_the_label_is_the_scalar_feature_of_kind_label(features, label):
    assert Schema(features).label is label


def test_the_fingerprint_is_pinned_and_depends_on_orders_and_dtypes():
    # It is compared between datasets that were built by different releases.
    assert Schema((IMAGE, LABEL, KEY), ("cat", "dög")).fingerprint == "9593f59ef6af7cbc"
    others = [
        Schema((IMAGE, LABEL), ("cat", "dog")),
        Schema((LABEL, IMAGE), ("cat", "dog")),
        Schema((IMAGE, LABEL), ("dog", "cat")),
        Schema((IMAGE, Feature("label", "label", "int32")), ("cat", "dog")),
    ]
    assert len({schema.fingerprint for schema in others}) == 4


@pytest.mark.parametrize(
    ("features", "class_names", "place", "message"),
    [
        ((), (), "features", "is empty, must hold at least one feature"),
        ((KEY, IMAGE, KEY), (), "features", "contains the name 'key' 2 times"),
        ((LABEL,), ("a", "b", "a", "a"), "class_names", "contains the name 'a' 3 times"),
        ((IMAGE,), ("a",), "class_names", "is not empty, but no feature is of kind 'label'"),
    ],
)
def test_a_faulty_schema_is_noted_with_its_place_and_raises(features, class_names, place, message):
    document = {"features": [feature.to_json() for feature in features], "class_names": list(class_names)}
    assert read(document) == (None, [(f"schema.{place}", message)])
    with pytest.raises(ValueError, match=f"^{re.escape(f'{place} {message}')}$"):
        Schema(features, class_names)


@pytest.mark.parametrize(
    ("document", "places"),
    [
        # faulty features do not hide other faults
        (
            {"features": [KEY.to_json(), KEY.to_json(), 3], "class_names": ["a", 1, "a", None], "x": 0},
            ["x", "features[2]", "class_names[1]", "class_names[3]", "features", "class_names"],
        ),
        # a label that cannot be read is not reported as missing too, nor are features that are not a list
        ({"features": [LABEL.to_json() | {"dtype": "x"}], "class_names": ["a"]}, ["features[0].dtype"]),
        ({"features": {}, "class_names": ["a"]}, ["features"]),
        ({}, ["features", "class_names"]),
    ],
)
def test_all_problems_of_a_schema_are_noted_at_once(document, places):
    schema, found = read(document)
    assert (schema, [place for place, _ in found]) == (None, [f"schema.{place}" for place in places])
