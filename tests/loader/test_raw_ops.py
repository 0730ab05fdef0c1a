"""TensorFlow's raw, experimental and private parts, each called for real against its public equivalent."""

import ast
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.loader.conftest import NUMBERS
from tfshards import loader
from tfshards.loader.graph import raw_ops

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


def call_of(dataset, function, specs):
    function = raw_ops.traced(function, [NUMBER])
    return raw_ops.Call(raw_ops.to_variant(dataset), function, specs)


def numbers_of(variant):
    return [int(number) for number in raw_ops.from_variant(variant, NUMBER)]


def squares(number):
    return number * number


def up_to(number):
    return tf.data.Dataset.range(number)


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


def test_a_dataset_survives_conversion_to_a_variant_and_back():
    given = tf.data.Dataset.range(4).batch(2)
    again = raw_ops.from_variant(raw_ops.to_variant(given), given.element_spec)
    assert again.element_spec == given.element_spec
    assert [batch.tolist() for batch in again.as_numpy_iterator()] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "mapped",
    [
        raw_ops.map_dataset,
        lambda call: raw_ops.map_dataset(call, 3),
        lambda call: raw_ops.map_dataset(call, in_calling_thread=True),
    ],
    ids=["in turn", "three at a time", "in the calling thread"],
)
def test_map_gives_the_elements_of_tf_data(mapped):
    given = tf.data.Dataset.range(50)
    found = numbers_of(mapped(call_of(given, squares, [NUMBER])))
    assert found == [int(number) for number in given.map(squares)]
    for calls in (None, 3):
        variant = raw_ops.map_dataset(call_of(given, squares, [NUMBER]), calls)
        assert len(raw_ops.from_variant(variant, NUMBER)) == 50


def test_flat_map_gives_the_elements_of_tf_data():
    given = tf.data.Dataset.range(6)
    call = call_of(given, lambda number: raw_ops.to_variant(up_to(number)), [NUMBER])
    assert numbers_of(raw_ops.flat_map_dataset(call)) == [int(number) for number in given.flat_map(up_to)]


@pytest.mark.parametrize("calls", [None, 2])
def test_interleave_gives_the_elements_of_tf_data(calls):
    given = tf.data.Dataset.range(7)
    call = call_of(given, lambda number: raw_ops.to_variant(up_to(number)), [NUMBER])
    wanted = given.interleave(up_to, 3, 2)
    assert numbers_of(raw_ops.interleave_dataset(call, 3, 2, calls)) == [int(number) for number in wanted]


def test_unbatch_gives_the_elements_of_tf_data():
    given = tf.data.Dataset.range(7).batch(3)
    assert numbers_of(raw_ops.unbatch_dataset(raw_ops.to_variant(given), [NUMBER])) == list(range(7))


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


def test_an_asserted_cardinality_is_known_and_checked():
    unknown = tf.data.Dataset.range(6).filter(lambda number: number % 2 == 0)
    assert len(raw_ops.with_cardinality(unknown, 3)) == 3
    assert raw_ops.with_cardinality(unknown, tf.data.UNKNOWN_CARDINALITY) is unknown
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="to contain 2 elements but contained at least 3"
    ):
        list(raw_ops.with_cardinality(unknown, 2))


def test_the_options_keep_order_and_graph_and_forbid_sharding():
    options = raw_ops.pipeline_options()
    assert options.deterministic is True
    assert options.autotune.enabled is False
    assert options.experimental_optimization.apply_default_optimizations is False
    assert options.experimental_distribute.auto_shard_policy.name == "OFF"
    given = tf.data.Dataset.range(3).with_options(options)
    assert [int(number) for number in given] == [0, 1, 2]


def test_a_dataset_without_prefetching_works_on_demand():
    worked = []

    def work(number):
        worked.append(int(number))
        return number

    given = tf.data.Dataset.range(100).map(lambda number: tf.numpy_function(work, [number], tf.int64))
    next(iter(raw_ops.not_prefetched(given)))
    assert worked == [0]


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


def test_a_distributed_dataset_keeps_its_length():
    # two replicas, and parameter servers, are devices of other processes: test_distribute.py,
    # test_parameter_servers.py
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    data = raw_ops.distributed(strategy, tf.data.Dataset.range(6).batch(2))
    assert isinstance(data, tf.distribute.DistributedDataset)
    assert int(data.cardinality) == 3
    assert [batch.numpy().tolist() for batch in data] == [[0, 1], [2, 3], [4, 5]]


def test_a_value_is_made_for_each_replica():
    strategy, made = tf.distribute.MirroredStrategy(["CPU:0"]), iter([tf.constant(7)])
    value = raw_ops.values_by_replica(strategy, lambda: next(made))
    assert [int(each) for each in strategy.experimental_local_results(value)] == [7]
    assert next(made, None) is None


def test_a_checkpoint_keeps_a_json_value(tmp_path):
    kept, restored = raw_ops.JsonState({"seed": 2**62, "run": None}), raw_ops.JsonState(None)
    path = tf.train.Checkpoint(state=kept).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(state=restored).restore(path).expect_partial()
    assert restored.value == {"seed": 2**62, "run": None}


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


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_load_gives_the_same_batches_without_raw_operations(
    operations, tmp_path, monkeypatch, write_dataset, compression
):
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
