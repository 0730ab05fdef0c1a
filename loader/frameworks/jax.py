"""The batches of ``load`` as arrays of JAX, on one device or sharded over several, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import jax
from jax.sharding import NamedSharding, Sharding

from tfshards.loader.arrays.examples import Batch
from tfshards.loader.frameworks.order import check_numeric, of_worker
from tfshards.loader.options.load_options import LoadOptions, takes
from tfshards.loader.options.selection import Position
from tfshards.loader.options.worker import Worker


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(LoadOptions):
    """The parameters of ``batches``.

    Attributes:
        sharding: where the arrays are placed; by default on JAX's default device. With a sharding over
            devices of several processes, each process has its part of the global batch.
    """

    sharding: Sharding | None = None


@takes(DeviceOptions)
def batches(options: DeviceOptions) -> Batches:
    """Return the batches of ``load`` as arrays of JAX, in the same order.

    >>> mesh = jax.make_mesh((jax.device_count(),), ("batch",))
    >>> sharding = NamedSharding(mesh, PartitionSpec("batch"))
    >>> loader.jax.batches("data/digits", "train", batch_size=256, sharding=sharding)

    Args:
        {options}

    Returns:
        An iterable of batches, each a dict by feature name or the tuple ``select``, of arrays of shape
        ``(batch_size, *shape)``; with ``sharding`` of several processes, ``(batch_size * count, *shape)``. As
        JAX does without ``jax_enable_x64``, int64 becomes int32. ``worker`` is by default the process in
        ``jax.distributed``.

    Raises:
        OptionsError: as for ``loader.batches``; and, when they are read, if features are not numbers.
        InputError: as for ``loader.batches``.
        FormatError: as for ``loader.batches``.
    """
    return Batches(options)


class Batches:
    """The batches of a run, on devices. See ``batches``."""

    def __init__(self, options: DeviceOptions) -> None:
        self._run = of_worker(options, this_worker)
        self._sharding = options.sharding

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches of an epoch, the same for each process."""
        return self._run.steps_per_epoch

    @property
    def position(self) -> Position:
        """The position of the next batch of the newest iteration, for ``start=`` here or of ``load``."""
        return self._run.position

    def __len__(self) -> int:
        """Return the number of batches of an iteration."""
        return len(self._run)

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches from the start of the run; the next epoch if the run is one epoch long."""
        for batch in self._run:
            yield jax.tree.map(self._placed, check_numeric(batch))

    def _placed(self, array: Batch) -> jax.Array:
        if isinstance(self._sharding, NamedSharding):
            return jax.make_array_from_process_local_data(self._sharding, array)
        return jax.device_put(array, self._sharding)


def this_worker() -> Worker:
    """Return the process in ``jax.distributed``; the only worker if it is not initialized."""
    return Worker(jax.process_index(), jax.process_count())
