"""litData: StreamingDataset and StreamingDataLoader, whose ``state_dict`` each worker saves.

https://github.com/Lightning-AI/litData#pause-resume: "num_workers and world_size may change: LitData drops a
global sample_in_epoch prefix and restripes the rest (never duplicates remaining IDs)".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import litdata

from peers.readers import EPOCHS, EXAMPLES, FILES, SEED, Run, Step, payload

ELASTIC, PROCESSES = True, True


def example(number: int) -> dict:
    return {"id": number, "payload": payload(number)}


def write(folder: Path) -> None:
    litdata.optimize(
        example,
        list(range(EXAMPLES)),
        output_dir=str(folder / "data"),
        chunk_size=EXAMPLES // FILES,
        num_workers=1,
        verbose=False,
    )


@contextmanager
def rank(index: int, count: int) -> Iterator[None]:
    """Be one of several workers, as litData's ``_DistributedEnv.detect`` finds it."""
    os.environ.update(GLOBAL_RANK=str(index), WORLD_SIZE=str(count), NNODES="1")
    try:
        yield
    finally:
        for name in ("GLOBAL_RANK", "WORLD_SIZE", "NNODES"):
            del os.environ[name]


def steps(folder: Path, run: Run, epoch: int, state: list | None) -> Iterator[Step]:
    loaders = []
    for index in range(run.workers):
        with rank(index, run.workers):
            dataset = litdata.StreamingDataset(str(folder / "data"), shuffle=True, drop_last=True, seed=SEED)
            loader = litdata.StreamingDataLoader(
                dataset, batch_size=run.batch_size, num_workers=run.processes, drop_last=True
            )
            if state:
                loader.load_state_dict(state[index] if len(state) == run.workers else state[0])
        loaders.append(loader)
    for number in range(epoch, EPOCHS):
        iterators = []
        for index, loader in enumerate(loaders):
            with rank(index, run.workers):
                iterators.append(iter(loader))
        while True:
            ids: list[int] = []
            ended = 0
            for index, iterator in enumerate(iterators):
                with rank(index, run.workers):
                    batch = next(iterator, None)
                if batch is None:
                    ended += 1
                else:
                    ids += batch["id"].tolist()
            if not ids:
                break
            if ended:
                raise RuntimeError("workers had different numbers of batches")
            yield Step(number, ids, lambda: [each.state_dict() for each in loaders])
