"""PyTorch's ``DataLoader`` over ``batches``: which epoch its processes read, and arrays as tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from tfshards.loader.array_batches import Batches
from tfshards.loader.arrays.examples import Batch
from tfshards.loader.options.position import Position
from tfshards.loader.options.validation import check_least
from tfshards.loader.order.plan import check_same_order
from tfshards.schemas import OptionsError
from tfshards.schemas.errors import check_instance

State: TypeAlias = "dict[str, Any]"


def data_loader(batches: Batches, num_workers: int = 0, **options: Any) -> DataLoader[Batch]:  # noqa: ANN401
    """Return a ``DataLoader`` of batches as tensors, in the order of ``load`` for every number of processes.

    >>> batches = loader.batches("data/photos", "train", batch_size=256, shuffle=loader.Shuffle(seed=0))
    >>> train = loader.torch.data_loader(batches, num_workers=4)

    Each iteration is the next epoch, or the one that ``train.sampler.set_epoch`` named; an iteration of which
    at most one batch was taken was a look, and does not count. Without worker processes, ``map(as_tensors,
    batches)`` is faster, since it reads ahead. Lightning and Accelerate take the result as it is, and do not
    divide it among the ranks once more; with Accelerate the batches stay on the CPU.

    Args:
        batches: the batches of this rank, of ``loader.batches``.
        num_workers: the number of processes that read.
        options: others of ``DataLoader``, except ``batch_size``, ``sampler`` and ``collate_fn``.

    Returns:
        Batches as ``as_tensors`` returns them.
    """
    check_instance("batches", batches, Batches)
    ahead = num_workers * (options.get("prefetch_factor") or 2)
    loader: DataLoader[Batch] = DataLoader(
        batches,
        batch_size=None,
        sampler=Epochs(batches, ahead),
        collate_fn=as_tensors,
        num_workers=num_workers,
        **options,
    )
    # Accelerate would leave the sampler out, and divide what is divided already
    loader._is_accelerate_prepared = True
    return loader


class Epochs(DistributedSampler[Any]):  # type: ignore[misc]
    """The batches of each iteration, for ``DataLoader(batches, sampler=Epochs(batches), batch_size=None)``.

    It yields ``(epoch, step)`` for ``batches[epoch, step]``, in the main process, so that all processes of a
    DataLoader read the same epoch. Each iteration is the next epoch, unless ``set_epoch`` was called. With
    ``start=``, or with ``epochs=`` other than 1, an iteration is the rest of the run. torchdata's
    ``StatefulDataLoader`` saves and restores the position. The rank is ``worker=`` of the batches; this is a
    ``DistributedSampler`` only so that nobody replaces it by one.

    Args:
        batches: the batches of this rank, of ``loader.batches``.
        ahead: number of batches that a DataLoader asks for before it delivers one, ``num_workers *
            prefetch_factor``: an iteration that asked for at most one more was a look, and does not count.
    """

    def __init__(self, batches: Batches, ahead: int = 0) -> None:
        # without the base's, which would ask for a process group
        self.batches: Batches = batches
        # an iteration of one batch cannot be told from a look
        self.looks: int = ahead + (batches.steps_per_epoch > 1)
        # indices of the batch with which the next iteration begins, and of the one after the newest
        self.begin: int = batches.first
        self.next: int = self.begin
        # the epoch that was set
        self.epoch: int | None = None
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        if batches.options.this_worker.count != ranks and batches.options.worker is None:
            warnings.warn(
                f"each of the {ranks} ranks reads {batches!r}: pass worker=loader.Worker(rank, {ranks}) to "
                "batches(), or worker=loader.Worker() if this is intended",
                stacklevel=2,
            )

    def __len__(self) -> int:
        """Return the number of batches of an iteration."""
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Return an iterator of epoch and step of each batch."""
        return _Iteration(self, self.begin)

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the epoch of iterations until the next call, as in ``DistributedSampler``.

        Within an epoch that was restored, the next iteration is its rest.

        Raises:
            OptionsError: the run has ``start=`` or another number of epochs than 1, so that an iteration is
                not an epoch; or ``epoch`` is less than 0.
        """
        check_least("epoch", epoch, 0)
        if not self.batches.options.is_one_pass:
            raise OptionsError(
                "set_epoch() chooses the epoch of an iteration, which start= and other epochs= than 1 make "
                "a run of its own; leave them out, or leave set_epoch() out"
            )
        self.epoch = epoch
        steps = self.batches.steps_per_epoch
        if not steps or self.begin // steps != epoch:
            self.begin = epoch * steps

    def state_dict(self) -> State:
        """Return the position after the batch asked for last, as the JSON values of ``Position``."""
        epoch, step = divmod(self.next, max(1, self.batches.steps_per_epoch))
        return Position(epoch, step, self.batches.order).to_json()

    def load_state_dict(self, state: State) -> None:
        """Let the next iteration begin where ``state_dict`` was called, in any number of processes.

        Raises:
            OptionsError: the state is from a run with another order.
        """
        position = Position.from_json(state)
        check_same_order(position.order, self.batches.order)
        self.begin = self.next = position.epoch * self.batches.steps_per_epoch + position.step


class _Iteration(Iterator[tuple[int, int]]):
    """One iteration of a sampler; its state may be that it is at its end."""

    def __init__(self, sampler: Epochs, begin: int) -> None:
        self._sampler, self._index, self._num_calls = sampler, begin, 0
        batches = sampler.batches
        self._end = batches.epoch_end(begin) if batches.options.is_one_pass else batches.end

    def __next__(self) -> tuple[int, int]:
        self._num_calls += 1
        if self._num_calls > self._sampler.looks:
            self._sampler.begin = self._after()
        if self._index == self._end:
            raise StopIteration
        self._index += 1
        self._sampler.next = self._index
        return divmod(self._index - 1, self._sampler.batches.steps_per_epoch)

    def _after(self) -> int:
        """Return where the iteration after this one begins."""
        batches, epoch = self._sampler.batches, self._sampler.epoch
        if not batches.options.is_one_pass or self._end is None:
            return batches.first
        return self._end if epoch is None else epoch * batches.steps_per_epoch

    def state_dict(self) -> State:
        return {"index": self._index, "end": self._end}

    def load_state_dict(self, state: State) -> None:
        self._index, self._end = state["index"], state["end"]
        self._sampler.begin = self._after() if self._index == self._end else self._index


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
