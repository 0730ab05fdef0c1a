"""One dataset over several hosts: each reads its own part, whichever way its strategy says who it is.

``MultiWorkerMirroredStrategy`` and ``TPUStrategy`` say it by ``InputContext``. The one of
``ParameterServerStrategy`` says "pipeline 0 of 1" to each worker, as they do not go in step, and the dataset
is made once for all of them: there the worker's index is a tensor, which each worker fills in.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import tensorflow as tf

from tfshards.loader.examples import Mix
from tfshards.loader.image_options import Image
from tfshards.loader.options import Worker
from tfshards.loader.pipeline import load
from tfshards.loader.progress import Progress
from tfshards.loader.request import LoadOptions
from tfshards.loader.stages import as_written
from tfshards.schemas import OptionsError


@dataclass(frozen=True, eq=False)
class _GraphWorker(Worker):
    """A worker whose ``index`` is a scalar int64 tensor, known where the graph runs."""

    def __post_init__(self) -> None:
        """Check nothing, since nothing is known yet."""


def has_several_hosts(strategy: tf.distribute.Strategy) -> bool:
    """Return whether ``strategy`` may read on more than one host."""
    return _has_servers(strategy) or isinstance(
        strategy, (tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.TPUStrategy)
    )


def num_shares(strategy: tf.distribute.Strategy) -> int:
    """Return the number of equal parts that a global batch has: the replicas of all workers."""
    replicas = int(strategy.num_replicas_in_sync)
    return replicas * _num_server_workers(strategy) if _has_servers(strategy) else replicas


def check_hosts(strategy: tf.distribute.Strategy, options: LoadOptions) -> None:
    """Raise if the options need what the workers of parameter servers have not.

    Raises:
        OptionsError: a dataset meant to be iterated once for each epoch would give the same one each time,
            as these workers make theirs anew for each iterator; only the coordinator would have a cache; or
            ``start`` is a ``Progress``, which counts the steps of workers that go together.
    """
    if not _has_servers(strategy):
        return
    one_pass = options.get("epochs", 1) == 1 and options.get("start") is None
    if one_pass and _is_random(options):
        raise OptionsError(
            "epochs=1 would give the same order for each iterator under ParameterServerStrategy, whose "
            "workers make their datasets anew; use epochs=None for training, or "
            "start=loader.Position(epoch) and epochs=epoch + 1 for a certain epoch"
        )
    if options.get("cache") is not None:
        raise OptionsError(
            f"cache={options['cache']!r} would copy the shards to the coordinator's host alone; leave it out "
            "under ParameterServerStrategy"
        )
    if isinstance(options.get("start"), Progress):
        raise OptionsError(
            "a Progress counts steps that all workers take together, which those of ParameterServerStrategy "
            "do not; use start=loader.Position(epoch)"
        )


def distribute_over_hosts(
    strategy: tf.distribute.Strategy,
    path: str | os.PathLike[str] | Mix,
    split: str | None,
    global_batch_size: int,
    options: LoadOptions,
) -> tf.distribute.DistributedDataset:
    """Return the distributed dataset in which each host has its own part of every global batch."""

    def host_dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        worker = Worker(context.input_pipeline_id, context.num_input_pipelines)
        if _has_servers(strategy):
            index = tf.distribute.coordinator.experimental_get_current_worker_index()
            worker = _GraphWorker(tf.cast(index, tf.int64), _num_server_workers(strategy))
        batch_size = global_batch_size // worker.count
        dataset = load(path, split, batch_size=batch_size, worker=worker, **options)
        per_replica = global_batch_size // num_shares(strategy)
        return dataset if per_replica == batch_size else dataset.rebatch(per_replica)

    if _has_servers(strategy):
        # What is wrong is said now, and plainly: the coordinator makes the dataset later, within a graph.
        count = _num_server_workers(strategy)
        load(path, split, batch_size=global_batch_size // count, worker=Worker(0, count), **options)
    return strategy.distribute_datasets_from_function(as_written(host_dataset))


def _has_servers(strategy: tf.distribute.Strategy) -> bool:
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def _num_server_workers(strategy: tf.distribute.Strategy) -> int:
    # The strategy has no public word for it; its coordinator takes the number from here, too.
    return int(strategy._num_workers)


def _is_random(options: LoadOptions) -> bool:
    image = options.get("image")
    images = [image] if image is None or isinstance(image, Image) else list(image.values())
    return options.get("shuffle") is not None or any(each and each.is_random for each in images)
