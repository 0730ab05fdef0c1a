"""``distribute``, a thin adapter of ``load`` for the strategies of ``tf.distribute``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import tensorflow as tf

from tfshards.loader.options.boxes import Boxes, Keypoints
from tfshards.loader.options.image import Image
from tfshards.loader.options.load_options import LoadOptions, OnDamage, Remainder, SampleWeights
from tfshards.loader.options.position import Counter, Position
from tfshards.loader.options.selection import Classes, Mix, Part, Shuffle
from tfshards.loader.options.validation import check_least, invalid, suggests
from tfshards.loader.options.worker import Worker
from tfshards.loader.pipeline import load_dataset
from tfshards.loader.tensors.stages import without_autograph
from tfshards.schemas import OptionsError


@suggests
def distribute(
    strategy: tf.distribute.Strategy,
    path: str | os.PathLike[str] | Mix,
    split: str | None = None,
    *,
    global_batch_size: int,
    select: Sequence[str] | None = None,
    take: int | Part | None = None,
    classes: Classes | None = None,
    image: Image | Mapping[str, Image] | None = None,
    boxes: Boxes | None = None,
    keypoints: Keypoints | None = None,
    sample_weights: SampleWeights | None = None,
    map_fn: Callable[..., object] | None = None,
    shuffle: Shuffle | None = None,
    remainder: Remainder = "drop",
    epochs: int | None = 1,
    start: Position | Counter | None = None,
    cache: str | None = None,
    on_damage: OnDamage = "raise",
) -> tf.distribute.DistributedDataset:
    """Return the batches of one split, divided among the replicas of ``strategy``.

    Each element holds one global batch: every replica has ``global_batch_size / num_replicas_in_sync`` of its
    examples. An epoch has as many elements as ``batches`` with this ``batch_size`` on one worker. For
    ``Model.fit`` on one host give Keras the dataset of ``load`` instead, which it distributes itself;
    ``class_weight=`` requires that one. On several hosts ``fit`` and ``evaluate`` of Keras 3 refuse any
    input: write the loop with ``strategy.run``, or use tf_keras with ``epochs=None`` (it reads a finite
    distributed dataset once, and trains on nothing in later epochs).

    ``ParameterServerStrategy`` has no common steps: examples/parameter_server.py reads the shards by
    ``feature_description`` there.

    ``remainder="keep"`` is refused, since it would leave replicas without examples.

    Args:
        strategy: any strategy of ``tf.distribute``.
        path: the directory with ``dataset.json``, which every host can read under this name.
        split: its name; may be left out if there is only one.
        global_batch_size: the number of examples in each batch of all replicas of all workers together.

    All others are those of ``load``.

    Raises:
        OptionsError: the replicas do not divide the batch, the strategy has parameter servers, or as for
            ``load``.
        InputError: as for ``load``.
        FormatError: as for ``load``.
    """
    given = locals()
    check_least("global_batch_size", global_batch_size, 1)
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise OptionsError(
            "the workers of a ParameterServerStrategy have no steps in common, which distribute() could "
            "divide; read the shards with tf.data.TFRecordDataset and loader.feature_description(path), as "
            "examples/parameter_server.py does"
        )
    of_load = {name: each for name, each in given.items() if name not in ("strategy", "global_batch_size")}
    whole = LoadOptions(**of_load, batch_size=global_batch_size, worker=Worker())
    if whole.remainder == "keep":
        raise OptionsError("remainder='keep' may leave a replica without examples; use 'pad' or 'drop'")
    shares = int(strategy.num_replicas_in_sync)
    if global_batch_size % shares:
        raise invalid("global_batch_size", global_batch_size, f"a multiple of the {shares} replicas")
    if not isinstance(strategy, (tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.TPUStrategy)):
        # The length stays known, so that Keras also sees where an epoch ends.
        return strategy.experimental_distribute_dataset(load_dataset(whole))

    def of_host(context: tf.distribute.InputContext) -> tf.data.Dataset:
        worker = Worker(context.input_pipeline_id, context.num_input_pipelines)
        of_worker = global_batch_size // worker.count
        dataset = load_dataset(replace(whole, batch_size=of_worker, worker=worker))
        # one batch for each replica of the host
        return (
            dataset
            if of_worker == global_batch_size // shares
            else dataset.rebatch(global_batch_size // shares)
        )

    return strategy.distribute_datasets_from_function(without_autograph(of_host))
