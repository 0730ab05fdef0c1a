"""Programs on several replicas, and the processes that run them; each prints what it saw as JSON.

TensorFlow's devices are fixed for the life of a process, and a worker is a process.

    replicas.py devices DATASET CASES    Keras and a custom loop on two logical devices
    replicas.py worker CASES             one worker of MultiWorkerMirroredStrategy
"""

import itertools
import json
import os
import socket
import sys
import time
import warnings
from contextlib import ExitStack
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow as tf

from tfshards import loader

SELECT = ("x", "label")


def run_workers(programs, folder, arguments, count, timeout=600):
    """Run workers on loopback, with these arguments; return ``[(stdout, stderr)]``."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        cluster = {"worker": [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]}
    started = []
    with ExitStack() as stack:
        for index in range(count):
            config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            files = [folder / f"worker-{index}.{stream}" for stream in ("out", "err")]
            process = programs.start(
                [Path(__file__), "worker", *arguments],
                stdout=stack.enter_context(files[0].open("w")),
                stderr=stack.enter_context(files[1].open("w")),
                env=os.environ | {"TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": ""},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append((process, files))
        end = time.monotonic() + timeout
        states = [None]
        # until all have ended, one has failed, or the time is up
        while None in states and not any(states) and time.monotonic() < end:
            time.sleep(0.05)
            states = [process.poll() for process, _ in started]
    read = [tuple(file.read_text() for file in files) for _, files in started]
    for (process, _), (_, stderr) in zip(started, read, strict=True):
        assert process.returncode == 0, f"status {process.returncode} after up to {timeout} s\n{stderr}"
    return read


def make_model():
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, kernel_initializer="zeros")])
    model.compile(
        keras.optimizers.SGD(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy("crossentropy", from_logits=True)],
    )
    return model


def fit(model, path):
    """Train for two epochs; return the weights, the steps, and the evaluation of padded batches."""
    steps = len(loader.batches(path, batch_size=4))
    options = {"batch_size": 4, "select": SELECT, "shuffle": loader.Shuffle(seed=1), "epochs": None}
    weights = loader.class_weights(path)
    # Keras shuffles arrays; for datasets it warns that it ignores shuffle=
    model.fit(
        loader.load(path, **options), epochs=2, steps_per_epoch=steps, class_weight=weights, shuffle=False,
        verbose=0,
    )  # fmt: skip
    padded = loader.load(path, batch_size=4, select=SELECT, remainder="pad")
    return {
        "weights": [weight.tolist() for weight in model.get_weights()],
        "steps": int(model.optimizer.iterations.numpy()),
        "evaluated": model.evaluate(padded, return_dict=True, verbose=0),
    }


def fit_distributed(model, strategy, path):
    """Return the steps of fits on a finite distributed dataset, and the evaluation of one."""
    steps, options = [], {"global_batch_size": 4, "select": SELECT}
    data = loader.distribute(strategy, path, shuffle=loader.Shuffle(seed=1), **options)
    padded = loader.distribute(strategy, path, remainder="pad", **options)
    evaluated = model.evaluate(padded, return_dict=True, verbose=0)
    for more in ({}, {"steps_per_epoch": 5}):
        before = int(model.optimizer.iterations.numpy())
        model.fit(data, epochs=2, shuffle=False, verbose=0, **more)
        steps.append(int(model.optimizer.iterations.numpy()) - before)
    return {"steps": steps, "evaluated": evaluated}


def uneven(path, options):
    """Return the warnings of ``load`` for batches that two replicas cannot share."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        loader.load(path, **options, select=SELECT)
        loader.load(path, **options, select=SELECT, worker=loader.Worker())
    return [str(warning.message) for warning in caught]


def loop(strategy, path, passes=2, **options):
    """Return the numbers and lists of each replica and step, in some passes over one distributed dataset."""
    steps = len(loader.batches(path, batch_size=4, remainder=options.get("remainder", "drop")))
    data = loader.distribute(
        strategy, path, "train", global_batch_size=4, select=("number", "list"), **options
    )

    @tf.function
    def values_of(batch):
        return strategy.run(lambda *values: values, args=batch)

    def local(value):
        parts = strategy.experimental_local_results(value)
        return [part.to_list() if hasattr(part, "to_list") else part.numpy().tolist() for part in parts]

    return [
        [[local(value) for value in values_of(batch)] for batch in itertools.islice(data, steps)]
        for _ in range(passes)
    ]


def devices(path, cases):
    """Train and iterate on one device, and on two."""
    warnings.simplefilter("error", UserWarning)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = {"replicas": strategy.num_replicas_in_sync, "one": fit(make_model(), path)}
    with strategy.scope():
        model = make_model()
        found["two"] = fit(model, path)
        found["uneven"] = [uneven(path, options) for options in json.loads(cases)]
        found["distributed"] = fit_distributed(model, strategy, path)
    found["shuffled"] = loop(strategy, path, shuffle=loader.Shuffle(seed=2))
    found["padded"] = loop(strategy, path, remainder="pad")
    return found


def worker_loop(strategy, path, global_batch_size, options):
    """Return this worker's numbers and weights of each step, and the sums over all workers of both."""
    if options.pop("shuffled"):
        options["shuffle"] = loader.Shuffle(seed=2)
    data = loader.distribute(
        strategy, path, global_batch_size=global_batch_size, select=("number",), **options
    )

    @tf.function
    def step(batch):
        def sums(number, weight=None):
            weight = tf.ones_like(number) if weight is None else tf.cast(weight, tf.int64)
            return tf.distribute.get_replica_context().all_reduce(
                "SUM", [tf.reduce_sum(number * weight), tf.reduce_sum(weight)]
            )

        return strategy.run(sums, args=batch)

    def own(value):
        (part,) = strategy.experimental_local_results(value)
        return part.numpy().tolist()

    # no islice(): the test is that the dataset ends at the same step for all workers
    return [{"own": [own(v) for v in batch], "all": [own(total) for total in step(batch)]} for batch in data]


def worker(cases):
    """Iterate as one of several workers."""
    cases = json.loads(cases)
    path = cases[0][0]
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    own = loader.Worker.from_environment()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader.load(path, batch_size=4)
        with strategy.scope():
            loader.load(path, batch_size=4)
    found = {"worker": [own.index, own.count], "warned": [str(each.message) for each in caught]}
    warnings.simplefilter("error", UserWarning)
    return found | {"cases": [worker_loop(strategy, *case) for case in cases]}


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    json.dump({"devices": devices, "worker": worker}[name](*arguments), sys.stdout)
