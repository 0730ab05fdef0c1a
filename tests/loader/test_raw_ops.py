"""Stages of tf.data and other raw or private parts of TensorFlow, compared with their public equivalents."""

import ast
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.loader.conftest import NUMBERS
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader.graph import raw_ops
from tfshards.loader.graph.stages import flat_mapped, interleaved, mapped, unbatched

LOADER = Path(__file__).parents[2] / "loader"
RAW_OPS = LOADER / "graph" / "raw_ops.py"
# Attributes that Keras reads from a callback
KERAS_HOOKS = LOADER / "training" / "keras_hooks.py"
NUMBER = tf.TensorSpec([], tf.int64)


WITH_FALLBACK = sorted(set(re.findall(r'_raw\("(\w+)"', RAW_OPS.read_text())))


@pytest.fixture(autouse=True, params=["raw", "missing", "with other arguments"])
def operations(request, monkeypatch):
    """Run each test with TensorFlow's raw operations, and as if a release lacked them or had changed them."""
    raw_ops._warn_without.cache_clear()
    if request.param == "raw":
        yield
        return
    for name in WITH_FALLBACK:
        if request.param == "missing":
            monkeypatch.delattr(tf.raw_ops, name)
        else:
            monkeypatch.setattr(tf.raw_ops, name, lambda *, renamed: renamed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TensorFlow .* has no tf.raw_ops")
        yield


def elements():
    pairs = tf.reshape(tf.range(18.0), [9, 2])
    return tf.data.Dataset.from_tensor_slices(({"z": tf.range(9), "a": (pairs,)}, tf.range(9) % 4))


def rows(dataset):
    return [tf.nest.map_structure(lambda value: value.tolist(), row) for row in dataset.as_numpy_iterator()]


def worked(named, number):
    return number, {"sum": tf.reduce_sum(named["a"][0]), "again": named}


def counted(named, number):
    count = tf.cast(number, tf.int64)
    return tf.data.Dataset.range(count).map(lambda index: (index, named))


@pytest.mark.nightly
@pytest.mark.parametrize("calls", [None, 3])
def test_map_and_interleave_give_the_elements_of_tf_data(calls):
    given = elements()
    for ours, theirs in [
        (mapped(given, worked, calls), given.map(worked, calls)),
        (flat_mapped(given, counted), given.flat_map(counted)),
        (
            interleaved(given, counted, 3, 2, calls),
            given.interleave(counted, 3, 2, num_parallel_calls=calls, deterministic=calls and True),
        ),
        (mapped(given.batch(2), worked, calls), given.batch(2).map(worked, calls)),
        (unbatched(given.batch(2)), given.batch(2).unbatch()),
    ]:
        assert ours.element_spec == theirs.element_spec
        assert ours.cardinality() in (theirs.cardinality(), tf.data.UNKNOWN_CARDINALITY)
        assert rows(ours) == rows(theirs)
        assert len(rows(ours)) >= 5


def test_ragged_lists_can_be_mapped_and_unbatched():
    given = tf.data.Dataset.range(5).batch(2)
    ragged = mapped(given, lambda numbers: tf.RaggedTensor.from_row_lengths(numbers, tf.ones_like(numbers)))
    assert [row.to_list() for row in mapped(ragged, lambda rows: rows * 2)] == [[[0], [2]], [[4], [6]], [[8]]]
    assert [row.numpy().tolist() for row in unbatched(ragged)] == [[0], [1], [2], [3], [4]]


def test_a_branch_in_a_function_that_returns_datasets_raises_instead_of_deadlocking():
    def branches(number):
        count = tf.cond(number > 3, lambda: number, lambda: 2 * number)
        return tf.data.Dataset.range(count)

    with pytest.raises(TypeError, match=r"If'\] in a function that returns a dataset could deadlock"):
        flat_mapped(tf.data.Dataset.range(5), branches)


def squares(number):
    return number * number


def test_a_function_without_autograph_is_traced_as_python_runs_it():
    def chosen(number):
        return number + 1 if number > 0 else number - 1

    given = tf.data.Dataset.range(2)
    assert [int(number) for number in given.map(chosen)] == [-1, 2], "AutoGraph makes it a tf.cond"
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        given.map(raw_ops.without_autograph(chosen))


def test_a_traced_function_has_the_attribute_that_tf_data_looks_for():
    function = raw_ops.traced(squares, [NUMBER])
    assert [int(number) for number in tf.data.Dataset.range(3).map(function)] == [0, 1, 4]
    # marks a function that TensorFlow does not place on a device; it runs within tf.data only
    with pytest.raises(tf.errors.UnimplementedError, match="has `experimental_ints_on_device` attribute set"):
        function(tf.constant(3, tf.int64))


def test_a_function_that_is_not_inlined_is_a_call_in_the_graph_of_its_caller():
    rare = raw_ops.not_inlined(squares, [NUMBER])
    caller = tf.function(rare, autograph=False).get_concrete_function(NUMBER)
    assert int(caller(tf.constant(3, tf.int64))) == 9
    (called,) = caller.graph.as_graph_def().library.function
    assert called.attr["_noinline"].b
    assert {node.op for node in called.node_def} >= {"Mul"}
    assert "Mul" not in {node.op for node in caller.graph.as_graph_def().node}


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_records_are_read_from_the_beginning_or_from_an_offset(tmp_path, compression):
    path, records = str(tmp_path / "records"), [b"a" * length for length in (3, 0, 40, 7)]
    with tf.io.TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
    for buffer_bytes in (0, 1 << 16):
        whole = raw_ops.tfrecord_dataset(path, compression, buffer_bytes, None)
        assert list(whole.as_numpy_iterator()) == records
        assert whole.element_spec == tf.data.TFRecordDataset(path, compression).element_spec
        # a record has 16 bytes around its content; in compressed files an offset counts what was compressed
        for first, offset in enumerate(np.cumsum([0, 19, 16])):
            # inside a function, see tfrecord_dataset
            rest = tf.data.Dataset.from_tensors(tf.constant(offset, tf.int64)).flat_map(
                lambda start, ahead=buffer_bytes: raw_ops.tfrecord_dataset(path, compression, ahead, start)
            )
            assert list(rest.as_numpy_iterator()) == records[first:]


def test_gather_and_upper_bound_match_tensorflow():
    values, indices = tf.constant([5, 1, 4]), tf.constant([2, 0, 0, 1], tf.int64)
    assert raw_ops.gather(values, indices).numpy().tolist() == tf.gather(values, indices).numpy().tolist()
    assert raw_ops.gather(("a", "b"), tf.constant(1)).numpy() == b"b"
    rows, wanted = np.array([[1, 3, 3, 8]]), tf.constant([[0, 1, 3, 7, 8, 9]], tf.int64)
    found = raw_ops.upper_bound(rows, wanted)
    assert found.dtype == tf.int64
    assert found.numpy().tolist() == tf.searchsorted(rows, wanted, side="right").numpy().tolist()


def test_a_counter_belongs_to_the_pipeline_that_made_it_and_to_no_other():
    def counting():
        counter = raw_ops.new_counter()
        return tf.data.Dataset.range(1).map(lambda _: raw_ops.count_up(counter))

    first, second = counting(), counting()
    assert [int(number) for _ in range(3) for number in first] == [0, 1, 2]
    assert [int(number) for number in second] == [0]
    assert first.element_spec == NUMBER


def test_a_failing_operation_raises_with_its_text():
    @tf.function
    def failing(name):
        with tf.control_dependencies([raw_ops.fail(tf.strings.join(["the shard ", name, " is damaged"]))]):
            return tf.constant(0)

    with pytest.raises(tf.errors.InvalidArgumentError, match="the shard s7 is damaged"):
        failing(tf.constant("s7"))


# Only raw_ops.py uses names without a compatibility promise of TensorFlow


def forbidden_names(tree):
    """Yield line and name of each raw, experimental or private name, which only raw_ops.py may use."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            # private attributes of the loader's own classes are allowed
            names = [] if owner in ("self", "cls") else [node.attr]
        elif isinstance(node, ast.keyword) and node.arg:
            names = [node.arg]
        for name in names:
            parts = name.split(".")
            if parts[0] == "tfshards":
                continue
            private = any(re.match(r"_(?!_)", part) for part in parts[1:] or parts)
            if (
                private
                or "raw_ops" in parts
                or "experimental" in name
                or name.startswith("tensorflow.python")
            ):
                yield node.lineno if hasattr(node, "lineno") else 0, name


def test_no_other_file_of_the_loader_uses_a_raw_experimental_or_private_name_of_tensorflow():
    found = {
        f"{path.relative_to(LOADER)}:{line} {name}"
        for path in LOADER.rglob("*.py")
        if path not in (RAW_OPS, KERAS_HOOKS)
        for line, name in forbidden_names(ast.parse(path.read_text()))
    }
    assert found == set()


def test_a_missing_operation_is_named_once(operations, monkeypatch):
    monkeypatch.delattr(tf.raw_ops, "Gather", raising=False)
    raw_ops._warn_without.cache_clear()
    with pytest.warns(UserWarning, match=r"has no tf\.raw_ops\.Gather .* is slower"):
        raw_ops.gather([1, 2], tf.constant(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        raw_ops.gather([1, 2], tf.constant(1))


def test_a_call_at_fault_fails_as_the_public_equivalent_does_without_a_warning(operations):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((TypeError, ValueError)):
            raw_ops.gather(object(), object())


@pytest.mark.nightly
@pytest.mark.parametrize("compression", mostly_nightly(["none", "gzip"], ["none"]))
def test_batches_need_no_raw_operations(operations, tmp_path, monkeypatch, write_dataset, compression):
    shards = [[{"number": 10 * shard + each} for each in range(size)] for shard, size in enumerate((8, 9, 1))]
    path = write_dataset(tmp_path / "d", NUMBERS, {"train": shards}, compression=compression)
    every = [{}, {"shuffle": loader.Shuffle(seed=1)}, {"remainder": "pad"}]

    def delivered():
        return [
            [tf.nest.map_structure(lambda each: each.numpy().tolist(), batch) for batch in batches]
            for batches in (loader.load(path, "train", batch_size=4, **options) for options in every)
        ]

    found = delivered()
    monkeypatch.undo()
    assert found == delivered()
