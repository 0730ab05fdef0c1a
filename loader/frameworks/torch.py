"""Batches and samplers for PyTorch's ``DataLoader`` and torchdata's ``StatefulDataLoader``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset, Sampler, get_worker_info

from tfshards.loader import array_batches
from tfshards.loader.arrays.examples import Batch
from tfshards.loader.frameworks.order import SamplerOptions, numbers_at, of_worker
from tfshards.loader.options.load_options import LoadOptions, constructor
from tfshards.loader.options.selection import Position
from tfshards.loader.options.validation import check_least
from tfshards.loader.options.worker import Worker
from tfshards.loader.order.plan import check_same_order
from tfshards.schemas import OptionsError

State: TypeAlias = "dict[str, Any]"

# Worker processes of one DataLoader.
_MOST_PROCESSES = 128


def this_worker() -> Worker:
    """Return the rank in ``torch.distributed`` if it is initialized, else the worker of a launcher."""
    if dist.is_available() and dist.is_initialized():
        return Worker(dist.get_rank(), dist.get_world_size())
    return Worker.from_environment()


class _Resumable:
    """Iterations over a run, in any number of processes of a DataLoader, whose state can be saved."""

    def __init__(self, run: array_batches.Batches) -> None:
        self._run = run
        # Iterations begun by each of n processes, for each n; shared, since they end with an iteration.
        self._begun = torch.zeros(_slot(0, _MOST_PROCESSES + 1), dtype=torch.int64).share_memory_()
        # The epoch that was set; -1 before.
        self._epoch = torch.full((1,), -1, dtype=torch.int64).share_memory_()
        self._place: State | None = None
        self._loaded: State | None = None
        self._is_iterated = False

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches of an epoch, the same for each rank."""
        return self._run.steps_per_epoch

    @property
    def position(self) -> Position:
        """The position of the next batch, where the DataLoader has no worker processes."""
        return Position.from_json(self.state_dict()["position"])

    def __len__(self) -> int:
        return len(self._run)

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the epoch of iterations until the next call, as in ``DistributedSampler``.

        If it is never called, each iteration is the next epoch.

        Raises:
            OptionsError: the run has ``start=`` or another number of epochs than 1, so that an iteration is
                not an epoch; or ``epoch`` is less than 0.
        """
        check_least("epoch", epoch, 0)
        if not self._run.is_one_pass:
            raise OptionsError("set-epoch-of-run")
        self._epoch.fill_(epoch)

    def state_dict(self) -> State:
        """Return JSON values: the next batch of this process, and ``"position"``, for ``load(start=)``."""
        place = self._loaded or self._place or self._beginning()
        position = self._run.position_of(place["next"], place["iteration"])
        return {**place, "position": position.to_json()}

    def load_state_dict(self, state: State) -> None:
        """Let the next iteration begin where ``state_dict`` was called.

        Raises:
            OptionsError: the state is from a run with another order, or with other worker processes.
        """
        check_same_order(state["position"]["order"], self._run.order)
        self._loaded = {name: state[name] for name in ("iteration", "next", "processes")}
        self._is_iterated = False

    def _rewind(self) -> None:
        """Prepare an iteration, which begins with its first batch: DataLoaders drop some before that.

        StatefulDataLoader drops the first one after a state at the end of an iteration, and wants the next.
        """
        loaded, end = self._loaded, self._run.end
        if loaded is not None and self._is_iterated and end is not None and loaded["next"] >= end:
            self._begun[_slot(*_process())] = loaded["iteration"] + 1
            self._loaded = None
        self._place, self._is_iterated = None, True

    def _begin(self) -> State:
        """Return the place of this process in the iteration that begins, which it moves on."""
        _, processes = _process()
        place, self._loaded = dict(self._loaded or self._beginning()), None
        if place["processes"] != processes:
            raise OptionsError("state-processes", found=place["processes"], wanted=processes)
        self._begun[_slot(*_process())] = place["iteration"] + 1
        self._place = place
        return place

    def _beginning(self) -> State:
        index, processes = _process()
        iteration = int(self._epoch)
        if iteration < 0:
            iteration = int(self._begun[_slot(index, processes)])
        return {"iteration": iteration, "next": self._run.first + index, "processes": processes}


class Batches(_Resumable, IterableDataset[Batch]):  # type: ignore[misc]
    """The batches of ``load`` as tensors, for ``DataLoader(batches, batch_size=None, num_workers=n)``.

    Each of n worker processes reads every n-th batch, so that the DataLoader delivers exactly the order of
    ``load`` for every n. A batch is a dict by feature, or the list of the features in ``select``, of tensors
    of shape ``(batch_size, *shape)``; byte strings are a list of ``bytes``, features whose shape varies a
    list of tensors. With torchdata's ``StatefulDataLoader`` a run is resumed exactly, with as many worker
    processes as before.
    """

    @constructor(LoadOptions)
    def __init__(self, options: LoadOptions) -> None:
        """Open the dataset; ``worker`` is by default the rank in ``torch.distributed`` or of a launcher.

        Args:
            {options}

        Raises:
            OptionsError: as for ``batches``.
            InputError: as for ``batches``.
            FormatError: as for ``batches``.
        """
        super().__init__(of_worker(options, this_worker))

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of this process."""
        self._rewind()
        return self._tensors()

    def _tensors(self) -> Iterator[Batch]:
        place = self._begin()
        for batch in self._run.iterate(place["iteration"], place["next"], place["processes"]):
            place["next"] += place["processes"]
            yield as_tensors(batch)


class BatchSampler(_Resumable, Sampler[list[int]]):  # type: ignore[misc]
    """The numbers of the examples of each batch of ``load``, lists of ``batch_size`` integers.

    >>> records = loader.Records("data/photos", "train")
    >>> sampler = loader.torch.BatchSampler("data/photos", "train", batch_size=256, shuffle=loader.Shuffle())
    >>> DataLoader(records, batch_sampler=sampler, num_workers=4)
    """

    @constructor(SamplerOptions)
    def __init__(self, options: SamplerOptions) -> None:
        """Open the dataset; ``worker`` is by default the rank in ``torch.distributed`` or of a launcher.

        Args:
            {options}

        Raises:
            OptionsError: an option is not allowed, or contradicts the others or the dataset.
            InputError: there is no dataset in ``path``, or no such split in it, or its shards are compressed.
            FormatError: the manifest or an index breaks the format, or a shard differs from the manifest.
        """
        super().__init__(options.batches(options.worker or this_worker()))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of an iteration."""
        self._rewind()
        return self._numbers()

    def _numbers(self) -> Iterator[list[int]]:
        place = self._begin()
        for epoch, step in self._run.positions(place["iteration"], place["next"]):
            place["next"] += 1
            yield numbers_at(self._run, epoch, step)


def as_tensors(value: Batch) -> Batch:
    """Return a batch of arrays as tensors; an array of objects as a list, whose arrays become tensors."""
    if isinstance(value, Mapping):
        return {name: as_tensors(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(as_tensors, value))
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == object:
        return list(map(as_tensors, value))
    if not value.flags.writeable:
        value = value.copy()
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(value)


def _process() -> tuple[int, int]:
    """Return which of the DataLoader's processes this is, and how many read."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _slot(index: int, processes: int) -> int:
    """Return where one of some processes counts."""
    return processes * (processes - 1) // 2 + index
