"""Choices, orders and positions that contradict each other, the dataset or the run are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.errors import fault, raises
from tests.loader.conftest import write
from tests.order.conftest import NAMES, written
from tfshards.loader import Mix, Part, Position, Shuffle, Worker, batches, load
from tfshards.schemas import Feature, FormatError, InputError, OptionsError, Schema

NONE = Schema((Feature("number", "int", "int64"), Feature("label", "label", "int64")), (*NAMES, "dog"))

CHOICES = [
    ({"take": 0}, fault("option-invalid", name="take", found=0)),
    ({"take": 42}, fault("take-too-many", take=42, num_examples=41)),
    ({"take": 0.5}, fault("option-invalid", name="take", found=0.5)),
    ({"take": 40, "classes": ["ant"]}, fault("take-too-many", take=40, num_examples=6)),
    ({"classes": "ant"}, fault("option-invalid", name="classes", found="ant")),
    ({"classes": []}, fault("option-invalid", name="classes")),
    ({"classes": ["ant", "ant"]}, fault("option-invalid", name="classes")),
    ({"classes": ["cow"]}, fault("classes-unknown", name="cow", known="'ant', 'bee', 'cat', 'dog'")),
    ({"classes": [4]}, fault("classes-unknown", name=4)),
    ({"classes": [-1]}, fault("classes-unknown", name=-1)),
    ({"classes": [True]}, "classes-unknown"),
    ({"classes": ["dog"]}, "classes-no-examples"),
    ({"classes": {"ant": 1, "dog": 1}}, fault("ratio-no-examples", name="dog")),
    ({"classes": {"ant": 1, "bee": 99}, "take": 20}, fault("ratio-no-positions", name="ant")),
    ({"classes": {"ant": 0}}, fault("option-invalid", name="classes['ant']")),
    ({"classes": {"ant": float("nan")}}, fault("option-invalid")),
    ({"remainder": "fill"}, fault("not-a-choice", name="remainder")),
    ({"epochs": 0}, fault("option-invalid", name="epochs", found=0)),
    ({"shuffle": Shuffle(lanes=3)}, fault("lanes-batch", wanted=3, global_batch_size=8)),
    (
        {"shuffle": Shuffle(lanes=4), "worker": Worker(0, 3)},
        fault("lanes-workers", wanted=4, num_workers=3),
    ),
    ({"start": Position(0, 5)}, fault("start-step", num_steps=5)),
    ({"start": Position(2), "epochs": 2}, fault("start-after-end", epochs=2, epoch=3)),
    (
        {
            "start": Position(1),
            "epochs": None,
            "shuffle": Shuffle(),
            "batch_size": 17,
            "worker": Worker(0, 16),
            "remainder": "keep",
        },
        fault("resume-lanes", count=16, usual=136),
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
    (lambda: Part(3, 3), fault("option-invalid", name="Part.index", found=3)),
    (lambda: Part(0, 0), fault("option-invalid", name="Part.count", found=0)),
    (lambda: Part(0.5, 2), fault("option-invalid", name="Part.index", found=0.5)),
    (lambda: Mix({}), fault("option-invalid", name="Mix.weights")),
    (lambda: Mix(["a"]), fault("option-invalid", name="Mix.weights")),
    (lambda: Mix({"a": 1, Path("a"): 1}), fault("option-invalid", name="Mix.weights")),
    (lambda: Mix({"a": -1}), fault("option-invalid", name="Mix.weights['a']")),
    (lambda: Position.from_json([0, 3]), fault("option-invalid", name="position")),
    (lambda: Position.from_json({"epoch": 1}), fault("option-invalid", name="position")),
    (
        lambda: Position.from_json({"epoch": 1, "step": 2, "stop": 3}),
        fault("option-invalid", name="position"),
    ),
    (lambda: Position.from_json({"epoch": 1, "step": -2}), fault("option-invalid", name="Position.step")),
    (
        lambda: Position.from_json({"epoch": 1, "step": 2, "order": "runs"}),
        fault("option-invalid", name="position"),
    ),
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
    with raises(OptionsError, "classes-unknown", name="ant", known="numbers only"):
        batches(tmp_path, batch_size=1, classes=["ant"])


def test_datasets_that_differ_are_not_mixed(data, tmp_path):
    labeled, bare = {"number": 1, "label": 0}, Schema(NONE.features[:1])
    write(tmp_path / "names", Schema(NONE.features, ("gnu",)), {"train": [[labeled]]})
    write(tmp_path / "bare", bare, {"train": [[{"number": 1}]]})
    write(tmp_path / "gzip", NONE, {"train": [[labeled]]}, compression="gzip")
    for name, expected in {
        "names": fault("mix-schema", replace="class names"),
        "bare": fault("mix-schema", replace="features"),
        "gzip": fault("mix-compression"),
    }.items():
        with raises(InputError, expected):
            batches(Mix({data.path: 1, tmp_path / name: 1}), batch_size=2)
    with pytest.raises(OptionsError, match="classes= cannot be combined with a Mix"):
        batches(Mix({data.path: 1}), batch_size=2, classes=["ant"])

    with pytest.raises(OptionsError, match="'balanced' counts classes"):
        batches(data.path, batch_size=2, classes={"ant": 1}, sample_weights="balanced")
    with pytest.raises(OptionsError, match=r"Position\.order lacks build_id, "):
        Position.from_json({"epoch": 1, "step": 2, "order": {"seed": 1}})
    with raises(OptionsError, "classes-no-label"):
        batches(tmp_path / "bare", batch_size=1, classes=["ant"])
    for options in ({"classes": ["ant"]}, {"shuffle": Shuffle(how="full")}):
        with raises(InputError, "records-compressed"):
            load(tmp_path / "gzip", batch_size=1, **options)


RUN = {"batch_size": 8, "shuffle": Shuffle(seed=3), "remainder": "keep", "epochs": 3}


@pytest.fixture
def start(data):
    """Return a position of a run, which passed through JSON."""
    position = position_of(batches(data.path, **RUN), 8)
    assert position == Position(1, 2)
    return Position.from_json(json.loads(json.dumps(position.to_json())))


OTHER_RUNS = [
    ({"shuffle": Shuffle(seed=4)}, fault("resume-order", what="Shuffle.seed", get=3)),
    ({"shuffle": Shuffle(how="full", seed=3)}, fault("resume-order", get="runs", get2="full")),
    ({"shuffle": None}, fault("resume-order", get="runs", get2="stored")),
    ({"shuffle": Shuffle(seed=3, lanes=4)}, fault("resume-order", what="Shuffle.lanes", get=8)),
    ({"shuffle": Shuffle(seed=3, run=7)}, fault("resume-order", what="Shuffle.run", get=2)),
    ({"remainder": "drop"}, fault("resume-order", what="remainder=", get="keep")),
    ({"take": 40}, fault("resume-order", what="the choice of examples")),
    ({"worker": Worker(0, 3)}, fault("resume-workers", count=3, what="8 lanes")),
    ({"batch_size": 16}, fault("resume-batch", batch_size=16, batch_size2=16)),
    ({"batch_size": 3, "worker": Worker(0, 2)}, fault("resume-batch", batch_size=6, batch_size2=3)),
    ({"epochs": 1}, "start-after-end"),
]


@pytest.mark.parametrize(("options", "expected"), OTHER_RUNS)
def test_a_run_with_another_order_is_not_resumed(data, start, options, expected):
    with raises(OptionsError, expected):
        batches(data.path, start=start, **{**RUN, **options})


@pytest.mark.parametrize(
    ("name", "what"), [("build_id", "the build of the dataset"), ("unknown", "'unknown'")]
)
def test_a_run_of_another_dataset_is_not_resumed(data, start, name, what):
    other = Position(1, 2, {**start.order, name: "ffffffff"})
    with raises(OptionsError, "resume-order", what=what, get="ffffffff"):
        batches(data.path, start=other, **RUN)


def test_a_finished_run_has_no_steps_left(data, start):
    assert len(batches(data.path, start=Position(3, 0, start.order), **RUN)) == 0
    with raises(OptionsError, "start-after-end"):
        batches(data.path, start=Position(3, 1, start.order), **RUN)
    stored = {**RUN, "shuffle": None}
    of_stored = position_of(batches(data.path, **stored), 8)
    with raises(OptionsError, "resume-workers", what="global batch of 8 examples"):
        batches(data.path, start=of_stored, worker=Worker(0, 3), **stored)


def test_a_resumed_run_keeps_its_lanes(data):
    options = {**RUN, "batch_size": 17, "remainder": "pad"}
    start = batches(data.path, worker=Worker(3, 16), **options).position
    assert start.order["lanes"] == 16, "the default of as many workers, not that of one"
    resumed = batches(data.path, start=start, worker=Worker(3, 8), **{**options, "batch_size": 34})
    assert resumed.position.order["lanes"] == 16
    with raises(OptionsError, "resume-workers", count=34, what="16 lanes"):
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
