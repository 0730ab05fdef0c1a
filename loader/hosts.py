"""Distribute one dataset over several hosts, each of which reads its own part.

``MultiWorkerMirroredStrategy`` and ``TPUStrategy`` identify a host by ``InputContext``. With
``ParameterServerStrategy``, whose workers run independently, the context is "pipeline 0 of 1" for each of
them, and the dataset is built once for all: there the worker's index is a tensor, evaluated on each worker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import tensorflow as tf

from tfshards.loader.graph.raw_ops import current_worker_index, num_server_workers, without_autograph
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.worker import Worker
from tfshards.loader.pipeline import load_dataset
from tfshards.loader.training.strategies import has_servers, num_shares
from tfshards.schemas import OptionsError
from tfshards.schemas.storage import is_remote


@dataclass(frozen=True, eq=False)
class _GraphWorker(Worker):
    """A worker whose ``index`` is a scalar int64 tensor, known where the graph runs."""

    def __post_init__(self) -> None:
        """Skip the checks, since the index is not known yet."""


def check_hosts(strategy: tf.distribute.Strategy, options: LoadOptions) -> None:
    """Raise if the workers of parameter servers do not support an option.

    Raises:
        OptionsError: the dataset would repeat the same epoch, because these workers build it again for each
            iterator; only the coordinator would have a cache; or ``start`` is a ``Progress``, which counts
            steps that all workers take together.
    """
    if not has_servers(strategy):
        return
    is_random = options.shuffle is not None or options.is_augmented or options.resamples
    if options.is_one_pass and is_random:
        raise OptionsError("server-epochs")
    if is_remote(options.path):
        raise OptionsError("server-remote", path=options.path)
    if options.cache is not None:
        raise OptionsError("server-cache", cache=options.cache)
    if options.tracker is not None:
        raise OptionsError("server-progress")


def distribute_over_hosts(
    strategy: tf.distribute.Strategy, options: LoadOptions
) -> tf.distribute.DistributedDataset:
    """Return the distributed dataset in which each host has its own part of every global batch.

    Args:
        strategy: a strategy of several hosts.
        options: the options for all hosts; ``batch_size`` is that of the global batch.
    """
    global_batch_size = options.batch_size
    per_replica = global_batch_size // num_shares(strategy)

    def host_dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        worker = Worker(context.input_pipeline_id, context.num_input_pipelines)
        if has_servers(strategy):
            worker = _GraphWorker(current_worker_index(), num_server_workers(strategy))
        batch_size = global_batch_size // worker.count
        dataset = load_dataset(replace(options, batch_size=batch_size, worker=worker))
        return dataset if per_replica == batch_size else dataset.rebatch(per_replica)

    if has_servers(strategy):
        # Raises errors here, in plain form: the coordinator builds the dataset later, inside a graph.
        count = num_server_workers(strategy)
        batch_size = global_batch_size // count
        load_dataset(replace(options, batch_size=batch_size, worker=Worker(0, count)))
    return strategy.distribute_datasets_from_function(without_autograph(host_dataset))
