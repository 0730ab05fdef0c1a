"""Invalid options, and variables of launchers, are refused with the value, the allowed ones and a remedy."""

import inspect
import json
import os
import pickle
import re
import sys
import types
from functools import partial

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader
from tfshards.loader import Boxes, Image, Keypoints, Position, Shuffle, Worker
from tfshards.schemas import Feature, InputError, OptionsError, Schema


def normalized(normalize, channels=None):
    return Image(dtype="float32", normalize=normalize, channels=channels)


# what is refused in a constructor, by the name in the error
VALUES = {
    "Worker.count": [lambda: Worker(0, 0)],
    "Worker.index": [lambda: Worker(2, 2)],
    "Shuffle.how": [lambda: Shuffle(how="half")],
    "Shuffle.run": [lambda: Shuffle(run=0), lambda: Shuffle(run=2.5)],
    "Shuffle.seed": [lambda: Shuffle(seed=2**63)],
    "Position.epoch": [lambda: Position(-1)],
    "Image.size": [lambda: Image(size=(0, 4)), lambda: Image(crop="center")],
    "Image.crop": [lambda: Image(size=(4, 4), crop="left")],
    "Image.scale": [
        lambda: Image((4, 4), scale=(0.5, 1)),
        *[partial(Image, (4, 4), "random", scale=scale) for scale in ((0.5, 1.5), (0.5, 0.1), (0, 1))],
    ],
    "Image.ratio": [lambda: Image((4, 4), "random", ratio=(1, float("inf")))],
    "Image.crop_fraction": [
        lambda: Image((4, 4), "random", crop_fraction=0.5),
        partial(Image, (4, 4), "center", crop_fraction=0),
    ],
    "Image.channels": [partial(Image, channels=count) for count in (2, True)],
    "Image.dtype": [lambda: Image(dtype="int8")],
    "Image.flip": [lambda: Image(flip=True)],
    "Image.method": [lambda: Image(method="cubic")],
    "Image.normalize": [
        lambda: Image(normalize="unit"),
        *[
            partial(normalized, wrong)
            for wrong in (0.5, (float("nan"), 1), (0, (1, 0, 1)), ((0, 0), 1), ((0, (1,)), 1))
        ],
        lambda: normalized("imagenet", 4),
        lambda: normalized((127.5, 127.5)),
    ],
    "Boxes.format": [lambda: Boxes("b", "xy")],
    "Boxes.along": [
        lambda: Boxes("b", "xywh", along=[1]),
        lambda: Boxes("b", "xywh", ["b"]),
        lambda: Boxes("b", "xywh", ["c", "c"]),
    ],
    "Boxes.min_visible": [partial(Boxes, "b", "xywh", min_visible=part) for part in (10, -1)],
    "Keypoints.flip_pairs": [
        partial(Keypoints, "a", pairs) for pairs in ([(0, 0)], [(-1, 1)], [(1,), (2, 3, 4)])
    ],
}


@pytest.mark.parametrize("name", VALUES)
def test_an_invalid_value_raises_in_its_constructor(name):
    for make in VALUES[name]:
        with pytest.raises(OptionsError, match=rf"^{re.escape(name)}="):
            make()


MISTAKES = [
    (loader.load, {"batch_sise": 8}, r"load\(\) has no parameter batch_sise=; was batch_size= meant\?"),
    (loader.load, {"global_batch_size": 8}, r"it takes batch_size=, the examples of one worker"),
    (loader.batches, {"global_batch_size": 8}, r"it takes batch_size=, the examples of one worker"),
    (loader.distribute, {"batch_size": 8}, r"it takes global_batch_size=, those of all workers together"),
    (loader.load, {"batch_size": 8, "drop_remainder": True}, r"was remainder= meant\?"),
    (loader.batches, {"batch_size": 8, "num_epochs": 2}, r"was epochs= meant\?"),
    (loader.load, {"batch_size": 8, "num_workers": 2}, r"was worker= meant\?"),
    (loader.load, {"batch_size": 8, "image_size": (9, 9)}, r"was image= meant\?"),
    (loader.load, {"batch_size": 8, "worker": (0, 4)}, r"worker=.* must be loader\.Worker\(index, count\)"),
    (loader.bench, {"batch_size": 8, "epoch": 3}, r"bench\(\) has no parameter epoch="),
    (loader.when, {"numbers": [3]}, r"when\(\) has no parameter numbers="),
    (loader.load, {"batch_size": 8, "shuffle": True}, r"shuffle=True must be loader\.Shuffle\(seed=0\)"),
    (
        loader.batches,
        {"batch_size": 8, "cache": "disk:/near, 1GiB"},
        r"cache='disk:/near, 1GiB' has a limit, which only load\(\) keeps to; cache='disk:/near' copies all",
    ),
    (loader.batches, {"batch_size": 8, "image": (9, 9)}, r"image=.* must be loader\.Image\(size="),
]


@pytest.mark.parametrize(("function", "options", "message"), MISTAKES)
def test_a_mistake_is_an_error_with_the_line_that_works(mixed, function, options, message):
    with pytest.raises(OptionsError, match=message):
        function(mixed, "train", **options)


def test_signatures_are_written_out():
    names = [[*inspect.signature(each).parameters] for each in (loader.load, loader.batches)]
    assert names[0] == names[1]
    assert [*inspect.signature(loader.distribute).parameters][4:] == [
        each for each in names[0][3:] if each != "worker"
    ]
    assert max(map(len, names)) <= 18


SCHEMA = Schema(
    (
        Feature("photo", "image", "uint8", (None, None, 3)),
        Feature("label", "label", "int64"),
        Feature("sample_weight", "float", "float32"),
    )
)


@pytest.fixture(scope="module")
def mixed(write_dataset, tmp_path_factory):
    """A dataset of two splits with an image, a label and a feature named ``sample_weight``."""
    examples = [[{"photo": b"", "label": 0, "sample_weight": 1.0}] * 4]
    return write_dataset(tmp_path_factory.mktemp("mixed"), SCHEMA, {"train": examples, "val": examples})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 must be"),
        *[
            ({"image": image}, (f"{name}="))
            for image, name in (
                ((224, 224), "image"),
                ({}, "image"),
                ({"photo": (9, 9)}, "image['photo']"),
                ({"foto": Image((9, 9))}, "image"),
                ({"photo": Image()}, "Image.size"),
            )
        ],
        ({"image": {"photo": Image((9, 9))}, "select": ("label",)}, "image="),
        ({"start": 3}, "start=3 must be"),
        *[
            ({"select": select}, "select=")
            for select in ((), ("label", "lable"), ["label", "label"], "label")
        ],
        ({"split": None}, ("has several splits", "'train', 'val'")),
        ({"split": "test"}, ("has no split", "'test'")),
    ],
)
def test_options_that_do_not_fit_the_dataset_are_refused(mixed, options, message):
    with raises(InputError if options.keys() == {"split"} else OptionsError, message):
        loader.load(mixed, **{"split": "train", "batch_size": 2, **options})


CACHES = [
    *[(f"disk:/tmp/c, {size}", ("which must be a size", repr(size))) for size in ("-5GiB", "7,5GiB")],
    ("disk:/tmp/a,b/c", ("which must be a size", "'b/c'")),
    *[(cache, 'must be "disk:PATH"') for cache in ("disk:, 5GiB", "disk:~nobody-has-this-name/cache", 1)],
]


@pytest.mark.parametrize(("cache", "message"), CACHES)
def test_a_mistyped_size_of_a_cache_is_not_part_of_its_path(mixed, cache, message):
    with raises(OptionsError, message):
        loader.load(mixed, "train", batch_size=1, cache=cache)


OBJECTS = Schema(
    (
        Feature("image", "image", "uint8", (None, None, 3)),
        Feature("scan", "image", "uint16", (4, 4, 1)),
        Feature("mask", "mask", "uint8", (None, None, 1)),
        Feature("deep", "mask", "uint16", (None, None, 1)),
        Feature("boxes", "float", "float32", (None, 4), "xywh"),
        Feature("plain", "float", "float32", (None, 4)),
        Feature("points", "float", "float32", (3, 3), "xyv"),
        Feature("pairs", "int", "int64", (2, 2)),
        Feature("number", "int", "int64"),
        Feature("pixels", "raw", "uint8", (4, 4)),
    )
)
ONE = {"image": Image((8, 8))}
CUT = {"image": Image((32, 24), "random"), "mask": Image((8, 8))}


def boxes(*arguments, **options):
    return {"image": ONE, "boxes": Boxes(*arguments, **options)}


def points(*arguments, **options):
    return {"image": ONE, "keypoints": Keypoints(*arguments, **options)}


@pytest.fixture(scope="module")
def objects(write_dataset, tmp_path_factory):
    values = {
        each.name: b"" if each.is_encoded else np.zeros([side or 1 for side in each.shape], each.dtype)
        for each in OBJECTS.features
    }
    return write_dataset(tmp_path_factory.mktemp("objects"), OBJECTS, {"train": [[values]]})


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"image": ONE, "boxes": "boxes"}, "boxes"),
        (boxes("bbox", "xywh"), "Boxes.feature"),
        (boxes("points", "xywh"), "Boxes.feature"),
        (boxes("boxes", along=["number"]), "Boxes.along"),
        (boxes("boxes", image="mask"), "Boxes.image"),
        ({**boxes("boxes"), "image": {**ONE, "scan": Image((4, 4))}}, "Boxes.image"),
        (boxes("plain"), "Boxes.format"),
        (boxes("boxes", "xyxy"), "Boxes.format"),
        (boxes("boxes", normalized=True), "Boxes.format"),
        (points("none"), "Keypoints.feature"),
        (points("pairs"), "Keypoints.format"),
        (points("boxes"), "Keypoints.feature"),
        (points("pairs", format="xyv"), "Keypoints.feature"),
        (points("points", format="xy"), "Keypoints.format"),
        ({**points("points"), "image": {"image": Image((8, 8), flip="vertical")}}, "Keypoints.flip_pairs"),
        (points("points", [(2, 3)]), "Keypoints.flip_pairs"),
        ({"image": CUT}, "Image.size"),
        ({"image": {**CUT, "mask": Image((32, 24), "center")}}, "Image.crop"),
        ({"image": {**CUT, "mask": Image(seed=5)}}, "Image.seed"),
        *[
            ({"image": {"mask": Image((9, 9), **wrong)}}, "Image")
            for wrong in ({"method": "bilinear"}, {"dtype": "float32"}, {"channels": 3})
        ],
        ({"image": {"deep": Image((9, 9), dtype="uint8")}}, "Image"),
        ({"image": {"scan": Image(dtype="float16")}}, "Image.dtype"),
        ({"image": {"scan": Image(dtype="uint8")}}, "Image.dtype"),
        ({"image": {"image": Image((8, 8), dtype="uint16")}}, "Image.dtype"),
        ({"image": ONE, "select": ("pixels", "number")}, "image"),
    ],
)
def test_options_that_do_not_fit_images_boxes_or_keypoints_are_refused(objects, options, name):
    for read in (loader.load, loader.batches):
        with raises(OptionsError, f"{name}="):
            read(objects, batch_size=1, **options)


def test_what_needs_something_else_is_refused(objects, mixed):
    for options in ({"boxes": Boxes("boxes")}, {"keypoints": Keypoints("points")}):
        with pytest.raises(OptionsError, match="with a decoded image; give image="):
            loader.batches(objects, batch_size=1, **options)
    with pytest.raises(OptionsError, match=r"options of how='runs'"):
        Shuffle(how="full", lanes=2)
    with pytest.raises(OptionsError, match="add 'sample_weight', which is a feature already"):
        loader.load(mixed, "train", batch_size=2, remainder="pad")


# ``Worker.from_environment``: the variables that TensorFlow clusters and launchers set


NAMES = ("TF_CONFIG", "HOROVOD", "OMPI_COMM_WORLD", "PMI", "SLURM", "RANK", "WORLD_SIZE")


def cluster(kind, index, **sizes):
    hosts = {name: [f"localhost:{port}" for port in range(size)] for name, size in sizes.items()}
    return {"TF_CONFIG": json.dumps({"cluster": hosts, "task": {"type": kind, "index": index}})}


def openmpi(rank, size):
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size)}


def slurm(rank, size):
    return {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(size), "SLURM_NTASKS": "9"}


@pytest.fixture
def environment(monkeypatch):
    """Return a function that sets only the given variables of launchers."""

    def leave(variables):
        for name in [name for name in os.environ if name.startswith(NAMES)]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return leave


@pytest.mark.parametrize(
    ("variables", "worker", "reason"),
    [
        ({}, (0, 1), "no launcher"),
        ({"TF_CONFIG": ""}, (0, 1), "an empty variable is ignored"),
        (cluster("worker", "1", worker=3), (1, 3), "an index written as text, as some tools do"),
        (cluster("chief", 0, chief=1, worker=2), (0, 3), "the chief is the first worker"),
        (cluster("worker", 0, chief=1, worker=2), (1, 3), "the workers follow the chief"),
        (cluster("worker", 1, master=1, worker=2), (2, 3), "its name in old clusters"),
        (cluster("evaluator", 0, chief=1, worker=2), (0, 1), "the evaluator reads for itself"),
        (openmpi(2, 4), (2, 4), "mpirun"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2), "MPICH, Intel MPI"),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}, (1, 2), "horovodrun"),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8), "torchrun"),
        (slurm(5, 6), (5, 6), "srun"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 1), "started by hand in an allocation"),
        ({"RANK": "1"}, (0, 1), "half of a pair says nothing"),
        (slurm(0, 2) | openmpi(3, 4), (3, 4), "mpirun in an allocation of Slurm: its own ranks count"),
        (openmpi(1, 2) | {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}, (1, 2), "two that agree"),
        (openmpi(1, 2) | cluster("worker", 1, worker=2), (1, 2), "a cluster whose processes mpirun starts"),
    ],
)
def test_a_worker_is_read_from_the_variables(environment, variables, worker, reason):
    environment(variables)
    assert loader.Worker.from_environment() == loader.Worker(*worker), reason


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (openmpi(4, 4), "OMPI_COMM_WORLD_RANK=4 and OMPI_COMM_WORLD_SIZE=4 must be an index"),
        (openmpi("a", 4), "OMPI_COMM_WORLD_RANK=a "),
        (
            openmpi(1, 2) | {"PMI_RANK": "0", "PMI_SIZE": "2"},
            "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE: 1 of 2, PMI_RANK and PMI_SIZE: 0 of 2",
        ),
        (openmpi(0, 2) | cluster("worker", 0, worker=3), "TF_CONFIG: 0 of 3, OMPI.*: 0 of 2"),
        (cluster("ps", 0, worker=2, ps=1), "TF_CONFIG names parameter servers"),
        (cluster("worker", 2, worker=2), "must be a JSON object with a cluster"),
        (cluster("chief", 0, worker=2), "must be a JSON object with a cluster"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "must be a JSON object"),
        ({"TF_CONFIG": "worker 0"}, "TF_CONFIG='worker 0' must be a JSON object"),
    ],
)
def test_contradictory_or_incomplete_variables_are_named(environment, variables, message):
    environment(variables)
    with pytest.raises(OptionsError, match=message):
        loader.Worker.from_environment()


def test_variables_alone_are_a_warning_and_a_process_group_decides(environment, numbered, monkeypatch):
    environment(slurm(1, 2))
    path = numbered([8])
    with pytest.warns(UserWarning, match=r"SLURM_STEP_NUM_TASKS names 2 workers, but batches\(\) without"):
        assert len(loader.batches(path, batch_size=4)) == 2
    group = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1, get_world_size=lambda: 2
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert "part 1 of 2, 1 steps" in repr(loader.batches(path, batch_size=4))


def test_paths_stay_where_they_were_given(numbered, monkeypatch, tmp_path):
    path = numbered([8])
    monkeypatch.chdir(path.parent)
    run, records = loader.batches(path.name, batch_size=8), loader.Records(path.name)
    copies = pickle.dumps(run), pickle.dumps(records)
    monkeypatch.chdir(tmp_path)
    for read in (run, pickle.loads(copies[0])):
        assert next(iter(read))["number"].tolist() == [*range(8)]
    assert [found[3]["number"] for found in (records, pickle.loads(copies[1]))] == [3, 3]
