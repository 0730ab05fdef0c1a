"""A source of batches and a sampler for Grain, in the order of ``load``, without TensorFlow."""

from __future__ import annotations

from grain import RecordMetadata

from tfshards.loader import array_batches
from tfshards.loader.arrays.examples import Batch
from tfshards.loader.frameworks.order import SamplerOptions, numbers_at, of_worker
from tfshards.loader.options.load_options import LoadOptions, constructor, takes
from tfshards.loader.options.selection import Position
from tfshards.loader.options.worker import Worker
from tfshards.schemas import OptionsError


@takes(LoadOptions)
def source(options: LoadOptions) -> Source:
    """Return the batches of a run of ``load`` by their indices, for ``grain.MapDataset.source``.

    >>> batches = loader.grain.source("data/photos", "train", batch_size=256, epochs=90)
    >>> iterator = iter(grain.MapDataset.source(batches).to_iter_dataset())

    The iterator has ``get_state`` and ``set_state``, and ``mp_prefetch`` reads in several processes.

    Args:
        {options}

    Returns:
        A sequence of the batches of ``loader.batches``, dicts or tuples of NumPy arrays, for all epochs
        of the run. ``worker`` is by default that of a launcher.

    Raises:
        OptionsError: as for ``loader.batches``, or ``epochs`` is None.
        InputError: as for ``loader.batches``.
        FormatError: as for ``loader.batches``.
    """
    return Source(options)


class Source:
    """The batches of a run by their indices, for any number of threads or processes. See ``source``."""

    def __init__(self, options: LoadOptions) -> None:
        self._run = of_worker(options, Worker.from_environment)
        _check_ends(self._run)

    def __len__(self) -> int:
        """Return the number of batches of the run."""
        return len(self._run)

    def __getitem__(self, index: int) -> Batch:
        """Return a batch, counted from the start of the run."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        return self._run.batch(*divmod(self._run.first + index, self._run.steps_per_epoch))

    def position(self, index: int) -> Position:
        """Return the position of a batch, for ``start=``; ``next_index`` of an iterator's state has one."""
        return self._run.position_of(self._run.first + index)

    def __repr__(self) -> str:
        return _described(self, self._run)


class Sampler:
    """The examples of a run of ``load`` in its order, for ``grain.DataLoader(sampler=)`` over ``Records``.

    >>> records = loader.Records("data/photos", "train")
    >>> sampler = loader.grain.Sampler("data/photos", "train", batch_size=256, epochs=90)
    >>> grain.DataLoader(data_source=records, sampler=sampler, shard_options=grain.sharding.NoSharding())
    """

    @constructor(SamplerOptions)
    def __init__(self, options: SamplerOptions) -> None:
        """Open the dataset; ``worker`` is by default that of a launcher.

        Args:
            {options}

        Raises:
            OptionsError: an option is not allowed, or contradicts the others or the dataset; or ``epochs`` is
                None.
            InputError: there is no dataset in ``path``, or no such split in it, or its shards are compressed.
            FormatError: the manifest or an index breaks the format, or a shard differs from the manifest.
        """
        self._run = run = options.batches(options.worker or Worker.from_environment())
        _check_ends(run)
        self._size = options.batch_size
        steps = run.steps_per_epoch
        # only the last batch of an epoch may be smaller
        last = len(numbers_at(run, 0, steps - 1)) if steps else 0
        self._per_epoch = (steps - 1) * self._size + last if steps else 0
        epoch, step = divmod(run.first, max(1, steps))
        self._first = epoch * self._per_epoch + step * self._size
        self._end = (run.end or 0) // max(1, steps) * self._per_epoch
        self._batch: tuple[tuple[int, int], list[int]] = (-1, -1), []

    def __len__(self) -> int:
        """Return the number of examples of the run, on this worker."""
        return max(0, self._end - self._first)

    def __getitem__(self, index: int) -> RecordMetadata:
        """Return which record is read as the ``index``-th one."""
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        epoch, position = divmod(self._first + index, self._per_epoch)
        step, row = divmod(position, self._size)
        # other threads may replace it in between
        at, numbers = self._batch
        if at != (epoch, step):
            numbers = numbers_at(self._run, epoch, step)
            self._batch = (epoch, step), numbers
        return RecordMetadata(index=index, record_key=numbers[row])

    def __repr__(self) -> str:
        return _described(self, self._run)


def _check_ends(run: array_batches.Batches) -> None:
    if run.end is None:
        raise OptionsError("grain-endless")


def _described(of: object, run: array_batches.Batches) -> str:
    """Return what the order depends on, which Grain compares with its checkpoints."""
    return f"{type(of).__name__}({run.position_of(run.first).to_json()}, {run.worker})"
