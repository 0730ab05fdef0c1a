import re

import pytest

from tfshards.schemas import Feature, Schema
from tfshards.schemas.json_reader import ObjectReader

IMAGE = Feature("image", "image", "uint8", (None, None, 3))
LABEL = Feature("label", "label", "int64")
KEY = Feature("key", "bytes", "bytes")


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
        Schema((LABEL,), ("b", "a", "gr\udcfc\u00df")),
    ],
    ids=["named classes", "no classes", "order is kept, and names that are not UTF-8"],
)
def test_a_schema_is_read_back_from_its_json(schema):
    assert read(schema.to_json()) == (schema, [])


def test_a_schema_can_be_indexed_by_name_and_iterated():
    schema = Schema((IMAGE, LABEL, KEY))
    assert schema.names == ("image", "label", "key")
    assert schema["label"] is LABEL
    with pytest.raises(KeyError, match="no feature 'weight'; the features are image, label, key"):
        schema["weight"]


@pytest.mark.parametrize(
    ("features", "label"),
    [
        pytest.param((IMAGE, LABEL), LABEL, id="the one of kind label"),
        pytest.param((Feature("label", "int", "int64"), KEY), None, id="its name does not make it one"),
        pytest.param(
            (Feature("tags", "label", "int64", (3,)), KEY), None, id="several labels are not the label"
        ),
        pytest.param((Feature("tags", "label", "int64", (3,)), LABEL), LABEL, id="found among several"),
    ],
)
def test_the_label_is_the_scalar_feature_of_kind_label(features, label):
    assert Schema(features).label is label


def test_the_fingerprint_is_pinned():
    # It is compared between datasets that were built by different releases.
    assert Schema((IMAGE, LABEL, KEY), ("cat", "dög")).fingerprint == "9593f59ef6af7cbc"


@pytest.mark.parametrize(
    "other",
    [
        Schema((LABEL, IMAGE), ("cat", "dog")),
        Schema((IMAGE, LABEL), ("dog", "cat")),
        Schema((IMAGE, Feature("label", "label", "int32")), ("cat", "dog")),
    ],
    ids=["order of features", "order of classes", "a dtype"],
)
def test_different_schemas_have_different_fingerprints(other):
    assert other.fingerprint != Schema((IMAGE, LABEL), ("cat", "dog")).fingerprint


FAULTS = [
    pytest.param(
        (), (), "features", "is empty, must hold at least one feature", id="an example holds something"
    ),
    pytest.param(
        (KEY, IMAGE, KEY), (), "features", "contains the name 'key' 2 times", id="a name means one feature"
    ),
    pytest.param(
        (LABEL,), ("a", "b", "a", "a"), "class_names", "contains the name 'a' 3 times", id="and one class"
    ),
    pytest.param(
        (IMAGE,),
        ("a",),
        "class_names",
        "is not empty, but no feature is of kind 'label'",
        id="names of what?",
    ),
]


@pytest.mark.parametrize(("features", "class_names", "place", "message"), FAULTS)
def test_a_faulty_schema_is_noted_with_its_place(features, class_names, place, message):
    document = {"features": [feature.to_json() for feature in features], "class_names": list(class_names)}
    assert read(document) == (None, [(f"schema.{place}", message)])


@pytest.mark.parametrize(("features", "class_names", "place", "message"), FAULTS)
def test_a_faulty_schema_raises(features, class_names, place, message):
    with pytest.raises(ValueError, match=f"^{re.escape(f'{place} {message}')}$"):
        Schema(features, class_names)


def test_several_labels_may_have_class_names():
    assert Schema((Feature("tags", "label", "int64", (3,)),), ("a", "b")).class_names == ("a", "b")


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        pytest.param(
            {"features": [KEY.to_json(), KEY.to_json(), 3], "class_names": ["a", 1, "a", None], "x": 0},
            [
                ("schema.x", "is not a field of this format"),
                ("schema.features[2]", "is 3, must be an object"),
                ("schema.class_names[1]", "is 1, must be a string"),
                ("schema.class_names[3]", "is null, must be a string"),
                ("schema.features", "contains the name 'key' 2 times"),
                ("schema.class_names", "contains the name 'a' 2 times"),
            ],
            id="faulty features do not hide other faults",
        ),
        pytest.param(
            {"features": [LABEL.to_json() | {"dtype": "x"}], "class_names": ["a"]},
            [
                (
                    "schema.features[0].dtype",
                    "is 'x', but kind 'label' can only be int16, int32, int64, int8, ",
                )
            ],
            id="a label that cannot be read is not reported as missing too",
        ),
        pytest.param(
            {"features": {}, "class_names": ["a"]},
            [("schema.features", "is {}, must be a list")],
            id="nor are features that are not a list",
        ),
        pytest.param(
            {},
            [("schema.features", "is missing"), ("schema.class_names", "is missing")],
            id="both fields are needed",
        ),
    ],
)
def test_all_problems_of_a_schema_are_noted_at_once(document, problems):
    schema, found = read(document)
    assert schema is None
    assert [place for place, _ in found] == [place for place, _ in problems]
    for (_, message), (_, expected) in zip(found, problems, strict=True):
        assert message.startswith(expected)
