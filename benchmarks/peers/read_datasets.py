"""Hugging Face datasets: an IterableDataset with a shuffle buffer, in torchdata's StatefulDataLoader.

The documentation of ``IterableDataset.state_dict`` (https://huggingface.co/docs/datasets/stream) uses
that of the loader, which has the dataset's in it, and states that the examples of shuffle buffers are lost.
Nothing there offers to resume on another number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import datasets
from datasets.distributed import split_dataset_by_node
from torchdata.stateful_dataloader import StatefulDataLoader

from peers.readers import EPOCHS, EXAMPLES, FILES, SEED, Run, Step, payload

ELASTIC, PROCESSES = False, True
BUFFER = 100


def write(folder: Path) -> None:
    numbers = list(range(EXAMPLES))
    whole = datasets.Dataset.from_dict({"id": numbers, "payload": [payload(number) for number in numbers]})
    datasets.disable_progress_bars()
    whole.save_to_disk(str(folder / "data"), num_shards=FILES)


def steps(folder: Path, run: Run, epoch: int, state: list | None) -> Iterator[Step]:
    stored = datasets.load_from_disk(str(folder / "data")).select_columns(["id"])
    shuffled = stored.to_iterable_dataset(num_shards=FILES).shuffle(seed=SEED, buffer_size=BUFFER)
    parts = [split_dataset_by_node(shuffled, index, run.workers) for index in range(run.workers)]
    yield from stateful_steps(parts, [part.set_epoch for part in parts], run, epoch, state)


def stateful_steps(
    parts, set_epochs, run: Run, epoch: int, state: list | None, samplers=None
) -> Iterator[Step]:
    """Yield the steps of one StatefulDataLoader for each worker."""
    loaders = [
        StatefulDataLoader(
            part,
            batch_size=run.batch_size,
            num_workers=run.processes,
            drop_last=True,
            sampler=samplers[index] if samplers else None,
        )
        for index, part in enumerate(parts)
    ]
    if state:
        for loader, saved in zip(loaders, state, strict=True):
            loader.load_state_dict(saved)
    for number in range(epoch, EPOCHS):
        for set_epoch in set_epochs:
            set_epoch(number)
        for batches in zip(*loaders, strict=True):
            ids = [example for batch in batches for example in batch["id"].tolist()]
            yield Step(number, ids, lambda: [loader.state_dict() for loader in loaders])
