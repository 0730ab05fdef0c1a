"""What commands print of the classes of a dataset."""

from __future__ import annotations

import pytest

from tfshards.prep.print import class_lines
from tfshards.schemas import Feature, Schema

KEY = Feature("key", "bytes", "bytes")
TAGS = Schema((Feature("tags", "label", "int64", (None,)), KEY), ("ant", "b\ne", "cat"))


def test_numbers_of_classes_are_listed_in_their_order_whatever_each_split_has():
    lines = class_lines({"train": {"2": 1, "10": 3}, "val": {"0": 4}})
    assert [line.split() for line in lines] == [
        ["class", "train", "val"],
        ["0", "0", "4"],
        ["2", "1", "0"],
        ["10", "3", "0"],
    ]


@pytest.mark.parametrize(
    ("schema", "lines"),
    [
        (TAGS, [r"tags: several classes an example, not counted: ant, b\ne, cat"]),
        (Schema((KEY,)), ["no labels"]),
        (None, ["no labels"]),
    ],
)
def test_classes_that_are_not_counted_are_named(schema, lines):
    assert class_lines({"train": {}}, schema) == lines
