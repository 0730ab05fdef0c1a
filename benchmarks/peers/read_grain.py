"""Grain on ArrayRecord: a MapDataset that is shuffled, sliced by worker and made an iterator with a state.

https://google-grain.readthedocs.io/en/latest/tutorials/dataset_basic_tutorial.html: ``shuffle``, ``ds[i::n]``
for processes, ``to_iter_dataset``, ``get_state``, ``set_state``; ``mp_prefetch`` for processes. A change of
the number of workers needs ``grain.experimental.ElasticIterator``, one state of which fits all workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grain
from array_record.python.array_record_module import ArrayRecordWriter

from peers.readers import EPOCHS, EXAMPLES, FILES, GLOBAL_BATCH_SIZE, SEED, Run, Step, payload

ELASTIC, PROCESSES = True, True


def write(folder: Path) -> None:
    (folder / "data").mkdir(parents=True)
    for number in range(FILES):
        writer = ArrayRecordWriter(str(folder / "data" / f"{number}.array_record"), "group_size:1")
        for example in range(number, EXAMPLES, FILES):
            writer.write(example.to_bytes(8, "big") + payload(example))
        writer.close()


def example_id(record: bytes) -> int:
    return int.from_bytes(record[:8], "big")


def steps(folder: Path, run: Run, epoch: int, state: list | None) -> Iterator[Step]:
    source = grain.sources.ArrayRecordDataSource([str(path) for path in sorted((folder / "data").iterdir())])
    # shuffle() gives each repetition its own order.
    examples = grain.MapDataset.source(source).map(example_id).seed(SEED).shuffle().repeat(EPOCHS)
    processes = (
        grain.multiprocessing.MultiprocessingOptions(num_workers=run.processes) if run.processes else None
    )
    iterators = []
    for index in range(run.workers):
        if run.elastic:
            shard = grain.sharding.ShardOptions(shard_index=index, shard_count=run.workers)
            dataset = grain.experimental.ElasticIterator(
                examples, GLOBAL_BATCH_SIZE, shard, multiprocessing_options=processes
            )
        else:
            dataset = (
                examples[index :: run.workers].batch(run.batch_size, drop_remainder=True).to_iter_dataset()
            )
            if processes:
                dataset = dataset.mp_prefetch(processes)
        iterators.append(iter(dataset))
    if state:
        for index, iterator in enumerate(iterators):
            iterator.set_state(state[0] if run.elastic else state[index])
    steps_per_epoch = EXAMPLES // GLOBAL_BATCH_SIZE
    done = state[-1] if state else 0
    try:
        for batches in zip(*iterators, strict=True):
            epoch, done = done // steps_per_epoch, done + 1
            ids = [int(number) for batch in batches for number in batch]
            # The number of steps is the training loop's own count: the iterator is one long epoch.
            yield Step(epoch, ids, lambda done=done: [*(each.get_state() for each in iterators), done])
    finally:
        for iterator in iterators:
            iterator.close()
