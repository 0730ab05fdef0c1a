"""``batches``: what ``load`` delivers, as NumPy arrays and without TensorFlow."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import shutil
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image as Pillow

from tests.errors import raises
from tests.tables import mostly_nightly
from tfshards.loader import (
    Boxes,
    Image,
    Keypoints,
    Mix,
    Part,
    Position,
    Progress,
    Shuffle,
    Worker,
    batches,
    load,
)
from tfshards.schemas import Feature, FormatError, InputError, OptionsError, Schema

from .conftest import flip_bit, frames_of, shard_of


@pytest.fixture(scope="module")
def scenes(write_dataset, tmp_path_factory):
    ends = np.cumsum(SIZES).tolist()
    shards = [[*map(example, range(end - size, end))] for size, end in zip(SIZES, ends, strict=True)]
    return write_dataset(tmp_path_factory.mktemp("scenes"), SCHEMA, {"train": shards})


PLAIN = ("key", "label", "ids", "grid", "boxes", "image", "view")
ORDERS = {
    "stored": {},
    "runs of several epochs": {"shuffle": Shuffle(seed=3), "epochs": 3},
    "short runs in lanes": {"shuffle": Shuffle(seed=1, run=2, lanes=4), "remainder": "pad"},
    "two of four workers": {"shuffle": Shuffle(seed=1), "remainder": "pad", "worker": Worker(2, 4)},
    "a full permutation": {"shuffle": Shuffle(seed=2, how="full"), "remainder": "keep"},
    "all but a part": {"take": Part(1, 3, rest=True), "remainder": "keep", "shuffle": Shuffle()},
    "some classes": {"classes": ["ant", "cat"], "shuffle": Shuffle(), "epochs": 2},
    "ratios": {"classes": {"ant": 1, "bee": 3}, "shuffle": Shuffle(), "epochs": 2},
    "a resumed run": {"start": Position(1, 2), "epochs": 3, "shuffle": Shuffle(), "remainder": "pad"},
    "balanced weights": {"sample_weights": "balanced", "remainder": "pad"},
    "weights of classes": {"sample_weights": {"ant": 1, "bee": 2, "cat": 0.5}},
    "weights of a feature": {"sample_weights": "weight", "remainder": "keep"},
}
CONTENTS = {
    "decoded": Image((12, 10), channels=3),
    "all of an example": Image((12, 10), crop="random", flip="horizontal_and_vertical", seed=3),
    "floats": Image((40, 32), crop="center", dtype="float32", normalize="imagenet"),
    "half": Image((8, 8), dtype="bfloat16", normalize=(0.5, 0.25)),
    "gray": Image((8, 9), channels=1, method="nearest"),
}


OFTEN = ["short runs in lanes", "a full permutation", "a resumed run", "ratios"]


@pytest.mark.parametrize(
    "options", mostly_nightly(ORDERS.values(), [ORDERS[name] for name in OFTEN]), ids=ORDERS
)
def test_the_batches_are_those_of_load(scenes, options):
    assert check_same(scenes, batch_size=8, select=PLAIN, **options)


@pytest.mark.parametrize(
    "image",
    mostly_nightly(CONTENTS.values(), [CONTENTS["all of an example"]]),
    ids=CONTENTS,
)
def test_images_are_decoded_as_by_load(scenes, image):
    select = ("image", "view", "key") + ("mask",) * (image.channels is None)
    options = {"select": select, "batch_size": 16, "shuffle": Shuffle(seed=1), "remainder": "pad"}
    assert check_same(scenes, image=image, **options)


def test_arrays_of_pixels_and_images_of_their_own_sizes(scenes):
    by_name = {"digit": Image((16, 12), channels=3, flip="horizontal")}
    assert check_same(scenes, batch_size=9, image=by_name, select=("digit", "key"), shuffle=Shuffle())
    (found,) = batches(
        scenes,
        batch_size=COUNT,
        image={"image": Image()},
        select=("image", "key"),
        map_fn=lambda example, _: {"image": example["image"]},
    )
    for number, pixels in enumerate(found["image"]):
        with Pillow.open(io.BytesIO(example(number)["image"])) as picture:
            assert np.array_equal(pixels, picture)


MOVED = {
    "cropped": Image((16, 12), crop="random", flip="horizontal", seed=2),
    "resized": Image((30, 40)),
    "turned": Image((16, 12), crop="center", flip="vertical"),
}


FORMS = [("cropped", "xyxy"), ("cropped", "cxcywh"), ("resized", "xywh"), ("turned", "yxyx")]


@pytest.mark.parametrize(("how", "form"), mostly_nightly(FORMS, FORMS[1:2]))
def test_boxes_and_keypoints_move_as_by_load(scenes, how, form):
    image = MOVED[how]
    boxes = Boxes("boxes", form, along=["ids"], image="image", normalized=form == "cxcywh")
    points = Keypoints("points", format="xyv", flip_pairs=[(0, 1)], image="image")
    options = {"batch_size": 21, "shuffle": Shuffle(), "select": ("image", "boxes", "ids", "points")}
    assert check_same(scenes, image={"image": image}, boxes=boxes, keypoints=points, **options)


def test_the_function_of_the_user_is_called_for_each_example(scenes):
    def tagged(example, seed):
        key = example["key"]
        return {"key": key, "seed": seed, "pair": (example["label"], example["grid"])}

    options = {"batch_size": 8, "shuffle": Shuffle(seed=4), "map_fn": tagged, "remainder": "pad"}
    assert check_same(scenes, **options)


def test_a_batch_is_a_function_of_its_epoch_and_step(scenes):
    options = {"batch_size": 8, "shuffle": Shuffle(seed=4), "select": ("key",)}
    run = batches(scenes, epochs=2, **options)
    steps = run.steps_per_epoch
    expected = [batch[0].tolist() for batch in run]
    again = pickle.loads(pickle.dumps(run))
    for number in (0, steps + 2, 1):
        epoch, step = divmod(number, steps)
        assert again.batch(epoch, step)[0].tolist() == expected[number]
        assert [b"%d" % each for each in run.numbers(epoch, step)] == expected[number]
    with pytest.raises(IndexError, match=f"step {steps} of {steps}"):
        run.batch(0, steps)


def test_an_epoch_without_an_end_is_followed_by_the_next_one(scenes):
    options = {"batch_size": 30, "shuffle": Shuffle(seed=4), "select": ("key",)}
    whole = [batch[0].tolist() for batch in batches(scenes, epochs=3, **options)]
    one = batches(scenes, **options)
    assert [batch[0].tolist() for _ in range(3) for batch in one] == whole
    endless = batches(scenes, epochs=None, **options)
    assert [batch[0].tolist() for batch in itertools.islice(endless, len(whole))] == whole
    with pytest.raises(TypeError, match="no number"):
        len(endless)


def test_a_run_is_resumed_by_the_other_from_its_position(scenes):
    options = {"batch_size": 8, "shuffle": Shuffle(seed=4, run=3), "select": ("key",), "epochs": 3}
    whole = [batch[0].tolist() for batch in batches(scenes, **options)]
    run = batches(scenes, **options)
    for _ in itertools.islice(run, 9):
        pass
    saved = Position.from_json(json.loads(json.dumps(run.position.to_json())))
    assert [batch[0].numpy().tolist() for batch in load(scenes, start=saved, **options)] == whole[9:]
    progress = Progress()
    for _ in itertools.islice(load(scenes, start=progress, **options), 5):
        progress.advance()
    rest = batches(scenes, start=progress, **options)
    assert [batch[0].tolist() for batch in rest] == whole[5:]
    assert (rest.position.epoch, rest.position.step) == (3, 0)
    with raises(OptionsError, "resume-order", what="Shuffle.seed"):
        batches(scenes, start=saved, **{**options, "shuffle": Shuffle(seed=5)})


def test_an_iteration_that_is_not_finished_leaves_no_threads(scenes):
    before = threading.active_count()
    iterator = iter(batches(scenes, batch_size=4, image=Image((8, 8))))
    next(iterator)
    iterator.close()
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPool"):
            thread.join(20)
    assert threading.active_count() <= before


def test_damage_is_an_error_or_skipped(scenes, write_dataset, tmp_path):
    examples = [example(number) for number in range(20)]
    path = write_dataset(tmp_path / "data", SCHEMA, {"train": [examples[:10], examples[10:]]})
    shard = shard_of(path, 0)
    places = frames_of(shard)
    for number in (0, 7):
        flip_bit(shard, int(places.offsets[number]) + 40)
    options = {"batch_size": 4, "remainder": "pad", "select": ("key", "label")}
    with pytest.raises(FormatError, match=r"record 0 at offset 0"):
        list(batches(path, **options))
    with pytest.warns(UserWarning, match="2 of the 20 records"):
        assert check_same(path, on_damage="skip", **options)
    # what differs from the manifest is not copied, but read where it is
    options["cache"] = f"disk:{tmp_path / 'near'}"
    with pytest.raises(FormatError, match="its digest differs from the manifest"):
        batches(path, **options)
    with pytest.warns(UserWarning, match="2 of the 20 records"):
        assert check_same(path, on_damage="skip", **options)


def test_mixed_datasets_are_read(scenes, write_dataset, tmp_path):
    other = write_dataset(tmp_path / "data", SCHEMA, {"train": [[example(each) for each in range(70, 90)]]})
    mix = Mix({scenes: 1, other: 3})
    assert check_same(mix, batch_size=8, shuffle=Shuffle(), select=("key",), epochs=2)


def test_options_that_only_load_has_are_refused(scenes):
    with raises(OptionsError, "batches-without", name="memory_budget"):
        batches(scenes, batch_size=4, memory_budget="1GiB")
    with raises(OptionsError, "cache-has-bound", cache="disk:/near, 1GiB"):
        batches(scenes, batch_size=4, cache="disk:/near, 1GiB")


def test_a_cache_is_read_instead_of_the_shards(scenes, tmp_path):
    far, cache = shutil.copytree(scenes, tmp_path / "far"), f"disk:{tmp_path / 'near'}"
    options = {"batch_size": 4, "shuffle": Shuffle(), "select": ("key", "label"), "cache": cache}
    assert check_same(far, **options)
    run = pickle.loads(pickle.dumps(batches(far, **options)))
    for shard in far.glob("train*"):
        shard.unlink()
    assert len([*run]) == len(run)


def test_what_load_warns_of_and_refuses_is_warned_of_and_refused(scenes, write_dataset, tmp_path):
    path = write_dataset(tmp_path / "gzip", SCHEMA, {"train": [[example(0)]]}, compression="gzip")
    with raises(InputError, "records-compressed"):
        batches(path, batch_size=1)
    with pytest.warns(UserWarning, match="fewer than the global batch size"):
        assert list(batches(scenes, batch_size=COUNT + 1)) == []


def test_neither_tensorflow_nor_without_images_pillow_is_imported(scenes):
    code = """
import sys
sys.modules["tensorflow"] = sys.modules["PIL"] = None
from tfshards import loader
run = loader.batches(sys.argv[1], batch_size=8, shuffle=loader.Shuffle())
assert sum(len(batch["key"]) for batch in run) == 56
try:
    loader.batches(sys.argv[1], batch_size=8, image=loader.Image((4, 4)))
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, scenes], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("image= needs PIL: pip install 'tfshards[images]'\n", "")


@pytest.mark.parametrize(
    ("returned", "code"),
    [([0.0], "map-fn-kind"), ({"sample_weight": 1}, "map-fn-weight"), (None, "map-fn-value")],
)
def test_results_that_cannot_be_delivered_are_refused(scenes, returned, code):
    run = batches(scenes, batch_size=4, remainder="pad", map_fn=lambda example, seed: returned)
    with raises(OptionsError, code):
        next(iter(run))


def test_an_image_that_cannot_be_decoded_is_named(write_dataset, tmp_path):
    examples = [{**example(number), **({"image": b"no image"} if number == 3 else {})} for number in range(6)]
    path = write_dataset(tmp_path / "data", SCHEMA, {"train": [examples]})
    with pytest.raises(FormatError, match="example 3: an image cannot be decoded"):
        list(batches(path, batch_size=3, image={"image": Image((4, 4))}, select=("image",)))
