"""When batches are asked for and handed over, noted by the dataset itself where Python does not see it.

Keras takes batches inside a compiled function, and a strategy takes them on a thread of its own. A last stage
that writes two times a batch into a table of TensorFlow works in both, at some 50 microseconds a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.stages import as_written

# Of one iteration the times of so many batches are kept until they are taken.
MOST_KEPT = 4096
_SUMS = -1


class Sums(NamedTuple):
    """What came of all iterations together, less the first batch, which waits until everything is set up.

    Attributes:
        num_batches: that were handed over, without the first.
        waited: seconds between asking and handing over, added up.
        began: when the second batch was asked for, in seconds since 1970.
    """

    num_batches: int
    waited: float
    began: float


@dataclass(frozen=True)
class Stamps:
    """The times of the batches of one dataset.

    Attributes:
        table: from a key to ``(iteration, batch, asked, handed over)``, float64; times in seconds since 1970,
            an iteration is called by that of its beginning. Or, in sums, to ``Sums`` and a 0.
        in_sums: whether only sums are kept.
    """

    table: tf.lookup.experimental.MutableHashTable
    in_sums: bool

    def take(self) -> npt.NDArray[np.float64]:
        """Return the rows that are there, shape ``(n, 4)``, and forget them."""
        keys, rows = self.table.export()
        self.table.remove(keys)
        taken: npt.NDArray[np.float64] = rows.numpy()
        return taken

    def sums(self) -> Sums:
        """Return the sums so far."""
        number, waited, began, _ = self.table.lookup(tf.constant(_SUMS, tf.int64)).numpy()
        return Sums(max(0, int(number) - 1), float(waited), float(began))


def stamped(dataset: tf.data.Dataset, in_sums: bool) -> tuple[tf.data.Dataset, Stamps]:
    """Return ``dataset`` with a stage behind it that notes when its batches come, and the notes.

    Elements, their specification and the cardinality are those of ``dataset``.
    """
    with tf.device("CPU:0"):
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float64, tf.zeros([4], tf.float64))
    note = _add_up if in_sums else _write_down

    def asks(started: tf.Tensor) -> tf.data.Dataset:
        numbers = tf.data.Dataset.range(tf.int64.max)
        return numbers.map(as_written(lambda batch: (started, batch, tf.timestamp())))

    def hand_over(asked: tuple[tf.Tensor, tf.Tensor, tf.Tensor], element: object) -> object:
        with tf.control_dependencies([note(table, *asked)]):
            return tf.nest.map_structure(tf.identity, element, expand_composites=True)

    iterations = tf.data.Dataset.range(1).map(as_written(lambda _: tf.timestamp()))
    # zip asks its datasets in turn: the first one's time is when the batch was asked for
    pairs = tf.data.Dataset.zip(iterations.flat_map(as_written(asks)), dataset)
    watched = pairs.map(as_written(hand_over))
    options = tf.data.Options()
    # A buffer behind the stage would be asked instead of it.
    options.experimental_optimization.inject_prefetch = False
    cardinality = tf.data.experimental.assert_cardinality(dataset.cardinality())
    known = dataset.cardinality() != tf.data.UNKNOWN_CARDINALITY
    return (watched.apply(cardinality) if known else watched).with_options(options), Stamps(table, in_sums)


def _write_down(
    table: tf.lookup.experimental.MutableHashTable, started: tf.Tensor, batch: tf.Tensor, asked: tf.Tensor
) -> tf.Operation:
    row = tf.stack([started, tf.cast(batch, tf.float64), asked, tf.timestamp()])
    key = tf.cast(started * 1e6, tf.int64) * MOST_KEPT + batch % MOST_KEPT
    return table.insert(key, row)


def _add_up(
    table: tf.lookup.experimental.MutableHashTable, started: tf.Tensor, batch: tf.Tensor, asked: tf.Tensor
) -> tf.Operation:
    key = tf.constant(_SUMS, tf.int64)
    number, waited, began, _ = tf.unstack(table.lookup(key), 4)
    waited += tf.where(number > 0, tf.timestamp() - asked, 0)
    began = tf.where(number == 1, asked, began)
    return table.insert(key, tf.stack([number + 1, waited, began, tf.zeros([], tf.float64)]))
