"""Selected examples: parts, classes, ratios of classes, mixtures; all exact in any order."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.errors import fault, raises
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Mix, Part, Position, Shuffle, Worker
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.order.ops import NUMPY
from tfshards.loader.order.plan import choose_population
from tfshards.loader.order.source import open_source
from tfshards.schemas import Feature, FormatError, InputError, OptionsError, Schema

CLASSES = ("cat", "dog", "eel", "fox")
SCHEMA = Schema((Feature("number", "int", "int64"), Feature("label", "label", "int64")), CLASSES)
# 60 cats, 25 dogs, 12 eels, no fox
LABELS = np.random.default_rng(7).permutation([0] * 60 + [1] * 25 + [2] * 12).tolist()
COUNT = len(LABELS)
SHUFFLES = [None, Shuffle(seed=5, run=3), Shuffle(how="full", seed=5)]


def examples_of(first, labels):
    return [{"number": first + index, "label": label} for index, label in enumerate(labels)]


@pytest.fixture(scope="module")
def animals(write_dataset, tmp_path_factory):
    examples = examples_of(0, LABELS)
    return write_dataset(tmp_path_factory.mktemp("zoo"), SCHEMA, {"train": [examples[:40], examples[40:]]})


@pytest.fixture(scope="module")
def more(write_dataset, tmp_path_factory):
    examples = examples_of(1000, [1, 1, 2, 3] * 5)
    return write_dataset(tmp_path_factory.mktemp("more"), SCHEMA, {"train": [examples]})


def numbers(path, num_workers=1, batch_size=8, **options):
    """Return the numbers that all workers together read in each step."""
    shares = []
    for index in range(num_workers):
        size, worker = batch_size // num_workers, Worker(index, num_workers)
        data = loader.load(path, batch_size=size, worker=worker, select=("number",), **options)
        shares.append([step.tolist() for (step,) in data.as_numpy_iterator()])
        assert len(shares[-1]) == len(data)
    return [list(itertools.chain(*steps)) for steps in zip(*shares, strict=True)]


def flat(steps):
    return [number for step in steps for number in step]


def chosen(path, **options):
    """Return the numbers of the examples of the first epoch in its stored order, without reading them."""
    checked = LoadOptions(path=path, batch_size=1, **options)
    population = choose_population(checked, open_source(checked))
    return population.numbers(NUMPY, np.int64(0), np.arange(population.num_positions)).tolist()


@pytest.mark.parametrize(
    ("shuffle", "num_workers"),
    mostly_nightly(itertools.product(SHUFFLES, [1, 2]), [(SHUFFLES[0], 1), (SHUFFLES[1], 2)]),
    ids=str,
)
def test_some_classes_are_read_once_each_and_are_counted(animals, shuffle, num_workers):
    wanted = [number for number, label in enumerate(LABELS) if label in (0, 2)]
    steps = numbers(animals, num_workers, classes=["cat", 2], shuffle=shuffle, remainder="keep")
    assert len(steps) == -(-len(wanted) // 8)
    assert sorted(flat(steps)) == wanted
    if shuffle is None:
        assert flat(steps) == wanted


@pytest.mark.parametrize("shuffle", mostly_nightly(SHUFFLES, SHUFFLES[:2]), ids=str)
def test_ratios_of_classes_are_exact_in_each_epoch_and_use_all_examples_equally(animals, shuffle):
    ratios = {"cat": 1, "dog": 1, "eel": 2}
    steps = numbers(animals, classes=ratios, take=80, shuffle=shuffle, epochs=3)
    assert len(steps) == 30
    for epoch in range(3):
        found = Counter(LABELS[number] for number in flat(steps[10 * epoch : 10 * epoch + 10]))
        assert found == {0: 20, 1: 20, 2: 40}
    used = Counter(flat(steps))
    for label, positions in ((0, 60), (1, 60), (2, 120)):
        members = [number for number in range(COUNT) if LABELS[number] == label]
        uses = [used[number] for number in members]
        assert sum(uses) == positions
        assert max(uses) - min(uses) <= 1
    # each batch has its share of each class, as far as its positions are random or unshuffled
    if shuffle is None:
        assert all(Counter(LABELS[number] for number in step)[2] in (3, 4, 5) for step in steps)


RATIOS, REST = {"classes": {"cat": 1, "dog": 1}, "take": 64}, {"take": Part(1, 3, rest=True)}


@pytest.mark.parametrize(
    ("what", "shuffle"),
    mostly_nightly(
        itertools.product([RATIOS, REST], SHUFFLES[1:]), [(RATIOS, SHUFFLES[2]), (REST, SHUFFLES[1])]
    ),
)
def test_a_selection_keeps_the_order_as_arithmetic(animals, shuffle, what):
    options = {**what, "shuffle": shuffle, "epochs": 2}
    whole = numbers(animals, **options)
    per_epoch = len(whole) // 2
    assert numbers(animals, **options, start=Position(1, 3)) == whole[per_epoch + 3 :]
    # and on two workers, from within the first epoch
    later = numbers(animals, 2, **options, start=Position(0, 5))
    assert [sorted(step) for step in later] == [sorted(step) for step in whole[5:]]
    assert sorted(flat(whole[:per_epoch])) != flat(whole[:per_epoch])
    assert whole[:per_epoch] != whole[per_epoch:]


@pytest.mark.nightly
@pytest.mark.parametrize("shuffle", mostly_nightly(SHUFFLES, SHUFFLES[1:2]), ids=str)
def test_parts_are_disjoint_and_complete_and_a_rest_is_the_complement(animals, shuffle):
    options = {"shuffle": shuffle, "remainder": "keep"}
    parts = [flat(numbers(animals, take=Part(index, 3), **options)) for index in range(3)]
    assert sorted(itertools.chain(*parts)) == list(range(COUNT))
    assert {len(part) for part in parts} == {32, 33}
    rest = flat(numbers(animals, take=Part(1, 3, rest=True), **options))
    assert sorted(rest + parts[1]) == list(range(COUNT))
    assert sorted(flat(numbers(animals, take=10, **options))) == list(range(10))
    assert chosen(animals, take=COUNT) == list(range(COUNT))


def test_parts_of_classes_are_disjoint_and_complete(animals):
    options = {"classes": ["dog"], "remainder": "keep"}
    parts = [flat(numbers(animals, take=Part(index, 2), **options)) for index in range(2)]
    assert sorted(itertools.chain(*parts)) == [n for n, label in enumerate(LABELS) if label == 1]
    assert flat(numbers(animals, take=3, **options)) == [n for n, each in enumerate(LABELS) if each == 1][:3]


def test_a_class_is_chosen_by_its_name_or_its_number(animals, write_dataset, tmp_path):
    assert chosen(animals, classes=[0]) == chosen(animals, classes=["cat"])
    assert chosen(animals, classes=[np.int64(2)]) == chosen(animals, classes=["eel"])
    unnamed = Schema(SCHEMA.features)
    path = write_dataset(tmp_path / "unnamed", unnamed, {"train": [examples_of(0, [5, 0, -1, 5])]})
    assert chosen(path, classes=[5]) == [0, 3]
    assert chosen(path, classes=[0, -1]) == [1, 2]
    with raises(OptionsError, "classes-unknown", name="cat", known="numbers only"):
        chosen(path, classes=["cat"])


@pytest.mark.parametrize("shuffle", SHUFFLES, ids=str)
def test_a_mix_gives_each_dataset_its_share_of_every_epoch(animals, more, shuffle):
    mix = Mix({animals: 3, more: 1})
    steps = numbers(mix, take=80, shuffle=shuffle, epochs=3, batch_size=16)
    used = Counter(flat(steps))
    for epoch in range(3):
        found = flat(steps[5 * epoch : 5 * epoch + 5])
        assert sum(number >= 1000 for number in found) == 20
        assert len(set(found)) == 80
    assert {used[number] for number in range(1000, 1020)} == {3}
    assert {used[number] for number in range(COUNT)} == {1, 2}
    assert loader.steps_per_epoch(mix, None, 16) == (COUNT + 20) // 16


def test_a_mix_names_the_differences_of_its_datasets(animals, write_dataset, tmp_path):
    other = Schema(SCHEMA.features, ("cat", "dog", "eel", "gnu"))
    path = write_dataset(tmp_path / "other", other, {"train": [examples_of(0, [0, 1])]})
    with raises(InputError, "mix-schema", replace="class names"):
        loader.load(Mix({animals: 1, path: 1}), batch_size=2)
    bare = Schema(SCHEMA.features[:1])
    path = write_dataset(tmp_path / "bare", bare, {"train": [[{"number": 1}]]})
    with raises(InputError, "mix-schema", replace="features"):
        loader.load(Mix({animals: 1, path: 1}), batch_size=2)
    with raises(OptionsError, "classes-no-label"):
        loader.load(path, batch_size=1, classes=["cat"])
    with raises(OptionsError, "classes-with-mix"):
        loader.load(Mix({animals: 1}), batch_size=2, classes=["cat"])
    with raises(OptionsError, "budget-with-mix"):
        loader.load(Mix({animals: 1}), batch_size=2, memory_budget="1GiB")
    for compression in ("none", "gzip"):
        path = tmp_path / compression
        write_dataset(path, SCHEMA, {"train": [examples_of(0, [0, 1])]}, compression=compression)
    with raises(InputError, "mix-compression"):
        loader.load(Mix({animals: 1, tmp_path / "gzip": 1}), batch_size=2)
    with raises(OptionsError, "compressed-random"):
        loader.load(tmp_path / "gzip", batch_size=1, classes=["cat"])
    with raises(OptionsError, "compressed-random"):
        loader.load(tmp_path / "gzip", batch_size=1, shuffle=Shuffle(how="full"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"take": 0}, fault("below-least", name="take", number=0)),
        ({"take": 98}, fault("take-too-many", take=98, num_examples=97)),
        ({"take": 0.5}, fault("take-type", take=0.5)),
        ({"take": 13, "classes": ["eel"]}, fault("take-too-many", take=13, num_examples=12)),
        ({"classes": "cat"}, fault("classes-type", classes="cat")),
        ({"classes": []}, "classes-empty"),
        ({"classes": ["cat", "cat"]}, "classes-repeated"),
        ({"classes": ["cow"]}, fault("classes-unknown", name="cow", known="'cat', 'dog', 'eel', 'fox'")),
        ({"classes": [4]}, fault("classes-unknown", name=4)),
        ({"classes": [-1]}, fault("classes-unknown", name=-1)),
        ({"classes": [True]}, "classes-unknown"),
        ({"classes": ["fox"]}, "classes-no-examples"),
        ({"classes": {"cat": 1, "fox": 1}}, fault("ratio-no-examples", name="fox")),
        (
            {"classes": {"cat": 1, "dog": 99}, "take": 20},
            fault("ratio-no-positions", name="cat", num_positions=20),
        ),
        ({"classes": {"cat": 0}}, fault("ratio-value", name="classes", key="cat")),
        ({"classes": {"cat": float("nan")}}, "ratio-value"),
        ({"classes": {"cat": 1}, "sample_weights": "balanced"}, "balanced-with-ratios"),
    ],
)
def test_invalid_selections_are_refused(animals, options, message):
    with raises(OptionsError, message):
        loader.load(animals, batch_size=2, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Part(3, 3), fault("index-range", name="Part", index=3)),
        (lambda: Part(0, 0), fault("below-least", name="Part.count", number=0)),
        (lambda: Part(0.5, 2), fault("not-an-integer", name="Part.index", number=0.5)),
        (lambda: Part(0, 2, rest=1), fault("not-a-flag", name="Part.rest", found=1)),
        (lambda: Mix({}), "mix-weights-type"),
        (lambda: Mix(["a"]), "mix-weights-type"),
        (lambda: Mix({"a": 1, Path("a"): 1}), "mix-weights-repeated"),
        (lambda: Mix({"a": -1}), fault("ratio-value", name="Mix.weights", key="a")),
    ],
)
def test_invalid_parts_and_mixes_are_refused(make, message):
    with raises(OptionsError, message):
        make()


def test_labels_that_contradict_the_manifest_are_refused(write_dataset, tmp_path):
    path = write_dataset(tmp_path / "d", SCHEMA, {"train": [examples_of(0, [0, 1, 1])]})
    (labels,) = path.glob("index/*.labels")
    labels.write_bytes(labels.read_bytes()[::-1])
    with pytest.raises(FormatError, match="its bytes have changed: the digest differs"):
        loader.load(path, batch_size=1, classes=["dog"])
    labels.unlink()
    with pytest.raises(FormatError, match="cannot be read: No such file"):
        loader.load(path, batch_size=1, classes=["dog"])
    assert len(loader.load(path, batch_size=1)) == 3, "what needs no labels does not look at them"
