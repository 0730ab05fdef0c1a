"""Decisions about the contents of an output: pure functions of a value, without a file system."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tfshards.prep.building import output_state
from tfshards.prep.building.output_state import OutputState, Wanted, discard_message, is_up_to_date, outlook
from tfshards.schemas import Feature, FormatError, InputError, Manifest, Problem, Schema, Totals

OUT = Path("out")
SCHEMA = Schema((Feature("x", "int", "int64"),))
NOW, BEFORE, OTHER, UNFINISHED, PLAN = "11111111", "22222222", "33333333", "44444444", "55555555"
FAULT = FormatError("out", [Problem("dataset.json", "is not readable as JSON")])


def manifest(build_id: str, **options: object) -> Manifest:
    """The manifest of a build whose inputs have the digest ``build_id``."""
    return Manifest(
        "x", build_id, SCHEMA, {}, Totals(0, 0), options={"seed": 0, **options}, inputs_digest=build_id
    )


def state(committed: str | None) -> OutputState:
    """An output with a build that was killed at its commit."""
    return OutputState(
        OUT,
        a_file="x",
        manifest=manifest(committed) if committed else None,
        unfinished=(output_state.UnfinishedBuild(PLAN, UNFINISHED, has_begun=True, options={"seed": 1}),),
    )


def test_the_area_of_a_committed_build_is_removed_even_by_a_build_of_the_same_plan():
    left = state(UNFINISHED)
    (build,) = left.unfinished
    assert output_state.is_committed(build, left)
    assert output_state.builds_to_discard(left, PLAN) == [build]
    assert output_state.builds_to_discard(state(BEFORE), PLAN) == []


def test_nothing_is_removed_if_the_manifest_cannot_be_read():
    unreadable = replace(state(None), fault=FAULT)
    assert output_state.builds_to_discard(unreadable, NOW) == []


def test_the_line_on_a_discarded_build_names_the_different_options_if_known():
    (build,) = state(None).unfinished
    line = "discarding an unfinished build: its inputs or options differ"
    assert discard_message(build, {"seed": 0}) == f"{line} (seed=)"
    assert discard_message(build, {"seed": 1}) == line
    assert discard_message(replace(build, options={}), {"seed": 0}) == line


def wanted(options: dict[str, object], name: str = "x", inputs: str = NOW) -> Wanted:
    """A build of inputs with this digest."""
    return Wanted(name, SCHEMA, options, inputs)


UP_TO_DATE = {
    "nothing": (OutputState(OUT), False, False),
    "an unfinished build": (state(None), False, False),
    "this build": (state(NOW), False, True),
    "this build, which may be overwritten": (state(NOW), True, True),
    "another build, which may be overwritten": (state(BEFORE), True, False),
    "this build, damaged, which may be overwritten": (
        replace(state(NOW), damage=(Problem("x", "is missing"),)),
        True,
        False,
    ),
    "an unreadable manifest, which may be overwritten": (replace(state(None), fault=FAULT), True, False),
}


@pytest.mark.parametrize(("found", "overwrite", "expected"), UP_TO_DATE.values(), ids=UP_TO_DATE)
def test_an_output_is_up_to_date_if_it_holds_this_build_completely(found, overwrite, expected):
    assert is_up_to_date(found, wanted({"seed": 0}), overwrite=overwrite) == expected


REFUSED = {
    "another build": (
        state(BEFORE),
        InputError,
        "^out holds a dataset with other inputs; give overwrite=True to replace it, or choose another",
    ),
    "damage": (
        replace(state(NOW), damage=(Problem("x", "is missing"),)),
        InputError,
        r"^out is damaged: x: is missing; give overwrite=True to rebuild it$",
    ),
    "a broken manifest": (replace(state(None), fault=FAULT), FormatError, "not readable as JSON"),
}


@pytest.mark.parametrize(("found", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_overwriting_a_dataset_is_refused(found, error, message):
    with pytest.raises(error, match=message):
        is_up_to_date(found, wanted({"seed": 0}), overwrite=False)


@pytest.mark.parametrize("overwrite", [False, True])
def test_adopted_records_are_never_overwritten(overwrite):
    adopted = replace(state(None), manifest=manifest(BEFORE, source="adopt"))
    with pytest.raises(InputError, match="records that tfshards did not write; choose another output"):
        is_up_to_date(adopted, wanted({}), overwrite=overwrite)
    assert outlook(adopted, wanted({})) == [
        "out holds records that tfshards did not write; choose another output"
    ]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (OutputState(OUT, is_file=True), "out is a file; the last argument, dataset=, must be a folder"),
        (OutputState(OUT, a_file="x"), "out holds files but no dataset, such as 'x'; choose an empty folder"),
    ],
)
def test_an_output_that_is_not_for_datasets_is_refused(found, message):
    with pytest.raises(InputError, match=message):
        output_state.check_usable(found)


DISTINCTIONS = [
    # options of the dataset, then name, options and inputs of the build; those of the dataset are BEFORE
    ({}, "y", {}, BEFORE, "with another name ('x')"),
    ({}, "x", {"seed": 1}, BEFORE, "with other options (seed=)"),
    (
        {},
        "y",
        {"seed": 1, "image_columns": ["a"], "pillow": "1"},
        OTHER,
        "with another name ('x') and other options (images=, pillow, seed=)",
    ),
    ({}, "x", {}, OTHER, "with other inputs"),
    ({"of": ["a"]}, "x", {"of": ["b"]}, OTHER, "with other inputs"),
    ({}, "x", {"of": ["b"]}, BEFORE, "with other inputs"),
    (
        {"source": "arrays", "lists": ["x"], "pillow": "1"},
        "x",
        {"source": "images", "check": "decode", "seed": 1},
        OTHER,
        "with another kind of source ('arrays')",
    ),
    ({"appended": [{}]}, "x", {}, OTHER, "with appended examples"),
    ({"appended": [{}]}, "y", {}, OTHER, "with another name ('x') and appended examples"),
]


@pytest.mark.parametrize(("recorded", "name", "options", "inputs", "text"), DISTINCTIONS)
def test_the_causes_of_another_build_are_named_as_far_as_known(recorded, name, options, inputs, text):
    found = replace(state(BEFORE), manifest=manifest(BEFORE, **recorded))
    build = wanted({"seed": 0, **options}, name, inputs)
    with pytest.raises(InputError, match=f"^out holds a dataset {re.escape(text)}; give overwrite=True"):
        is_up_to_date(found, build, overwrite=False)


def test_a_build_names_the_edits_that_it_would_lose():
    found = replace(
        state(BEFORE), manifest=manifest(BEFORE, source="relabel", removed=["00", "01"], relabeled=1)
    )
    build = wanted({"seed": 0, "source": "images"}, "x", BEFORE)
    with pytest.raises(InputError) as raised:
        is_up_to_date(found, build, overwrite=False)
    assert raised.value.values == {"folder": OUT, "removed": 2, "relabeled": 1}
    assert not is_up_to_date(found, build, overwrite=True)
    assert outlook(found, build) == [str(raised.value).replace("overwrite=True", "--overwrite")]


def test_other_features_are_named_if_nothing_else_differs():
    build = Wanted("x", Schema((Feature("y", "int", "int64"),)), {"seed": 0}, BEFORE)
    with pytest.raises(InputError, match=r"^out holds a dataset with other features or class names; give"):
        is_up_to_date(state(BEFORE), build, overwrite=False)


def test_a_plan_shows_that_a_build_is_done_already():
    assert outlook(state(NOW), wanted({"seed": 0})) == [
        "out already holds this build, unless the content of inputs has changed"
    ]
    assert outlook(state(None), wanted({"seed": 0})) == []
