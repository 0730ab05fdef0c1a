"""tfshards: ``loader.load`` for each worker, resumed at the ``Position`` of a ``Progress``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from peers.readers import EPOCHS, EXAMPLES, FILES, SEED, Run, Step, payload

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np

from tfshards import loader

# Threads of TensorFlow read ahead, always; there are no other processes.
ELASTIC, PROCESSES = True, False


def write(folder: Path) -> None:
    from tfshards import prep

    payloads = np.array([np.frombuffer(payload(number), np.uint8) for number in range(EXAMPLES)])
    source = prep.Arrays({"id": np.arange(EXAMPLES), "payload": payloads})
    prep.build(source, folder / "data", shards=FILES)


def steps(folder: Path, run: Run, epoch: int, state: dict | None) -> Iterator[Step]:
    progress = [
        loader.Progress(loader.Position.from_json(state) if state else None) for _ in range(run.workers)
    ]
    datasets = [
        loader.load(
            folder / "data",
            batch_size=run.batch_size,
            worker=loader.Worker(index, run.workers),
            shuffle=loader.Shuffle(seed=SEED, lanes=40),
            epochs=EPOCHS,
            start=progress[index],
        )
        for index in range(run.workers)
    ]
    for batches in zip(*datasets, strict=True):
        epoch = progress[0].epoch
        for each in progress:
            each.advance()
        ids = [number for batch in batches for number in batch["id"].numpy().tolist()]
        yield Step(epoch, ids, lambda: progress[0].position.to_json())
