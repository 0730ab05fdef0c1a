"""Hugging Face datasets, read by index: torchdata's StatefulDistributedSampler and StatefulDataLoader.

https://meta-pytorch.org/data/main/torchdata.stateful_dataloader.html; there is no shuffle buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import datasets
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from peers.read_datasets import stateful_steps, write
from peers.readers import SEED, Run, Step

ELASTIC, PROCESSES = False, True
__all__ = ["ELASTIC", "PROCESSES", "steps", "write"]


def steps(folder: Path, run: Run, epoch: int, state: list | None) -> Iterator[Step]:
    stored = datasets.load_from_disk(str(folder / "data")).select_columns(["id"])
    samplers = [
        StatefulDistributedSampler(stored, run.workers, index, shuffle=True, seed=SEED, drop_last=True)
        for index in range(run.workers)
    ]
    set_epochs = [sampler.set_epoch for sampler in samplers]
    yield from stateful_steps([stored] * run.workers, set_epochs, run, epoch, state, samplers)
