"""Choices, orders and positions that contradict each other, the dataset or the run are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tests.loader.conftest import write
from tests.order.conftest import NAMES, written
from tfshards.loader import Mix, Part, Position, Shuffle, Worker, batches, load
from tfshards.schemas import Feature, FormatError, InputError, OptionsError, Schema

NONE = Schema((Feature("number", "int", "int64"), Feature("label", "label", "int64")), (*NAMES, "dog"))

CHOICES = [
    ({"take": 0}, "take=0 must be"),
    ({"take": 42}, ("exceeds the", "take=42", "41 examples")),
    ({"take": 0.5}, "take=0.5 must be"),
    ({"take": 40, "classes": ["ant"]}, ("exceeds the", "take=40", "6 examples")),
    ({"classes": "ant"}, "classes='ant' must be"),
    ({"classes": []}, "classes="),
    ({"classes": ["ant", "ant"]}, "classes="),
    ({"classes": ["cow"]}, ("classes= names", "'cow'", "'ant', 'bee', 'cat', 'dog'")),
    ({"classes": [4]}, ("classes= names", "names 4")),
    ({"classes": [-1]}, ("classes= names", "names -1")),
    ({"classes": [True]}, "classes= names"),
    ({"classes": ["dog"]}, "has no examples of"),
    ({"classes": {"ant": 1, "dog": 1}}, ("has no examples of", "'dog'")),
    ({"classes": {"ant": 1, "bee": 99}, "take": 20}, ("positions of", "'ant'")),
    ({"classes": {"ant": 0}}, "classes['ant']="),
    ({"classes": {"ant": float("nan")}}, "must be"),
    ({"remainder": "fill"}, "remainder="),
    ({"epochs": 0}, "epochs=0 must be"),
    ({"shuffle": Shuffle(lanes=3)}, ("does not divide", "Shuffle.lanes=3", "size 8")),
    (
        {"shuffle": Shuffle(lanes=4), "worker": Worker(0, 3)},
        ("workers; use", "Shuffle.lanes=4", "3 workers"),
    ),
    ({"start": Position(0, 5)}, "does not exist: an epoch has 5 steps"),
    ({"start": Position(2), "epochs": 2}, ("is after the end", "epochs=2", "least 3")),
    (
        {
            "start": Position(1),
            "epochs": None,
            "shuffle": Shuffle(),
            "batch_size": 17,
            "worker": Worker(0, 16),
            "remainder": "keep",
        },
        ("workers, or", "16 workers", "136 lanes"),
    ),
]


def position_of(run, index):
    """Return the position of the batch with an index, counted from the start of epoch 0."""
    return Position(*divmod(index, run.steps_per_epoch), run.order)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return written(tmp_path_factory.mktemp("refused"), [9, 0, 14, 7, 11], schema=NONE)


@pytest.mark.parametrize(("options", "expected"), CHOICES)
def test_choices_that_do_not_fit_are_refused(data, options, expected):
    with raises(OptionsError, expected):
        batches(data.path, **{"batch_size": 8, **options})


VALUES = [
    (lambda: Part(3, 3), "Part.index=3 must be"),
    (lambda: Part(0, 0), "Part.count=0 must be"),
    (lambda: Part(0.5, 2), "Part.index=0.5 must be"),
    (lambda: Mix({}), "Mix.weights="),
    (lambda: Mix(["a"]), "Mix.weights="),
    (lambda: Mix({"a": 1, Path("a"): 1}), "Mix.weights="),
    (lambda: Mix({"a": -1}), "Mix.weights['a']="),
    (lambda: Position.from_json([0, 3]), "position="),
    (lambda: Position.from_json({"epoch": 1}), "position="),
    (lambda: Position.from_json({"epoch": 1, "step": -2}), "Position.step="),
]


@pytest.mark.parametrize(("make", "expected"), VALUES)
def test_values_that_mean_nothing_are_refused(make, expected):
    with raises(OptionsError, expected):
        make()


def test_a_class_without_a_name_is_chosen_by_its_number(tmp_path):
    shard = [{"number": number, "label": label} for number, label in enumerate([5, 0, -1, 5])]
    write(tmp_path, Schema(NONE.features), {"train": [shard]})
    for classes, expected in (([5], [0, 3]), ([0, -1], [1, 2]), ([np.int64(0)], [1])):
        (batch,) = batches(tmp_path, batch_size=4, classes=classes, remainder="keep")
        assert batch["number"].tolist() == expected
    with raises(OptionsError, "classes= names", "'ant'", "numbers only"):
        batches(tmp_path, batch_size=1, classes=["ant"])


def test_datasets_that_differ_are_not_mixed(data, tmp_path):
    labeled, bare = {"number": 1, "label": 0}, Schema(NONE.features[:1])
    write(tmp_path / "names", Schema(NONE.features, ("gnu",)), {"train": [[labeled]]})
    write(tmp_path / "bare", bare, {"train": [[{"number": 1}]]})
    write(tmp_path / "gzip", NONE, {"train": [[labeled]]}, compression="gzip")
    for name, expected in {
        "names": ("cannot be mixed", "class names"),
        "bare": ("cannot be mixed", "features"),
        "gzip": "differ in compression",
    }.items():
        with raises(InputError, expected):
            batches(Mix({data.path: 1, tmp_path / name: 1}), batch_size=2)
    with pytest.raises(OptionsError, match="classes= cannot be combined with a Mix"):
        batches(Mix({data.path: 1}), batch_size=2, classes=["ant"])

    with pytest.raises(OptionsError, match="'balanced' counts classes"):
        batches(data.path, batch_size=2, classes={"ant": 1}, sample_weights="balanced")
    with pytest.raises(OptionsError, match=r"Position\.order lacks build_id, "):
        Position.from_json({"epoch": 1, "step": 2, "order": {"seed": 1}})
    with raises(OptionsError, "classes= requires"):
        batches(tmp_path / "bare", batch_size=1, classes=["ant"])
    for options in ({"classes": ["ant"]}, {"shuffle": Shuffle(how="full")}):
        with raises(InputError, "compressed shards are unpacked", code="cache-needed"):
            load(tmp_path / "gzip", batch_size=1, **options)


RUN = {"batch_size": 8, "shuffle": Shuffle(seed=3), "remainder": "keep", "epochs": 3}


@pytest.fixture
def start(data):
    """Return a position of a run, which passed through JSON."""
    position = position_of(batches(data.path, **RUN), 8)
    assert position == Position(1, 2)
    return Position.from_json(json.loads(json.dumps(position.to_json())))


OTHER_RUNS = [
    ({"shuffle": Shuffle(seed=4)}, ("start= belongs to a run in which", "seed was 3")),
    ({"shuffle": Shuffle(how="full", seed=3)}, ("start= belongs to a run in which", "'runs'", "'full'")),
    ({"shuffle": None}, ("start= belongs to a run in which", "'runs'", "'stored'")),
    ({"shuffle": Shuffle(seed=3, lanes=4)}, ("start= belongs to a run in which", "lanes was 8")),
    ({"shuffle": Shuffle(seed=3, run=7)}, ("start= belongs to a run in which", "run was 2")),
    ({"remainder": "drop"}, ("start= belongs to a run in which", "remainder was 'keep'")),
    ({"take": 40}, ("start= belongs to a run in which", "examples was")),
    ({"worker": Worker(0, 3)}, ("global_batch_size was 8", "here it is 24")),
    ({"batch_size": 16}, ("global_batch_size was 8", "here it is 16")),
    ({"batch_size": 3, "worker": Worker(0, 2)}, ("global_batch_size was 8", "here it is 6")),
    ({"epochs": 1}, "is after the end"),
]


@pytest.mark.parametrize(("options", "expected"), OTHER_RUNS)
def test_a_run_with_another_order_is_not_resumed(data, start, options, expected):
    with raises(OptionsError, expected):
        batches(data.path, start=start, **{**RUN, **options})


@pytest.mark.parametrize("name", ["build_id", "unknown"])
def test_a_run_of_another_dataset_is_not_resumed(data, start, name):
    other = Position(1, 2, {**start.order, name: "ffffffff"})
    with raises(OptionsError, f"in which {name} was", "'ffffffff'", code="resume-differs"):
        batches(data.path, start=other, **RUN)


def test_a_finished_run_has_no_steps_left(data, start):
    assert len(batches(data.path, start=Position(3, 0, start.order), **RUN)) == 0
    with raises(OptionsError, "is after the end"):
        batches(data.path, start=Position(3, 1, start.order), **RUN)
    stored = {**RUN, "shuffle": None}
    of_stored = position_of(batches(data.path, **stored), 8)
    with raises(OptionsError, "global_batch_size was 8", code="resume-differs"):
        batches(data.path, start=of_stored, worker=Worker(0, 3), **stored)


def test_a_resumed_run_keeps_its_lanes(data):
    options = {**RUN, "batch_size": 17, "remainder": "pad"}
    start = batches(data.path, worker=Worker(3, 16), **options).position
    assert start.order["lanes"] == 16, "the default of as many workers, not that of one"
    resumed = batches(data.path, start=start, worker=Worker(3, 8), **{**options, "batch_size": 34})
    assert resumed.position.order["lanes"] == 16
    with raises(OptionsError, "lanes=16 cannot be divided evenly among 34 workers"):
        batches(data.path, start=start, worker=Worker(3, 34), **{**options, "batch_size": 8})


def test_labels_that_contradict_the_manifest_are_refused(tmp_path):
    data = written(tmp_path, [3])
    (labels,) = data.path.glob("*/index/*.labels")
    labels.write_bytes(labels.read_bytes()[::-1])
    with pytest.raises(FormatError):
        batches(data.path, batch_size=1, classes=["bee"])
    labels.unlink()
    with pytest.raises(FormatError):
        batches(data.path, batch_size=1, classes=["bee"])
    assert len(batches(data.path, batch_size=1)) == 3, "what needs no labels does not look at them"
