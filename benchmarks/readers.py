"""Read and resume with tfshards and with other tools: a training run of some workers, saved at any step.

stop_runs.py runs in the environment of a tool and calls its reader. frameworks.py and views.py write the
formats of other tools by the same functions. Each function imports its tool.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

EXAMPLES, GLOBAL_BATCH_SIZE, EPOCHS, SEED = 800, 40, 2, 7
WORKER_COUNTS = (1, 2, 4)
FILES = 8
# of the number with which a record of ArrayRecord begins
ID_BYTES = 8
# of HF datasets
BUFFER = 100


@dataclass(frozen=True)
class Run:
    """How a training run reads.

    Attributes:
        workers: the number of processes of the training run, 40 / workers examples a step each.
        processes: the number of processes with which each worker reads ahead; 0 for the tool's default way.
        elastic: whether the number of workers may change later, where a tool has another reader for that.
    """

    workers: int
    processes: int = 0
    elastic: bool = False

    @property
    def batch_size(self) -> int:
        """The number of examples in the batch of one worker."""
        return GLOBAL_BATCH_SIZE // self.workers


class Step(NamedTuple):
    """One step: its epoch, the ids of the global batch, and a function that returns the tool's checkpoint."""

    epoch: int
    ids: list[int]
    save: Callable[[], Any]


def examples() -> Iterator[tuple[bytes, int]]:
    """Yield the examples of the shoot-out, each a payload of 64 bytes and its id."""
    for number in range(EXAMPLES):
        yield number.to_bytes(8, "big") * 8, number


# Formats. Each function writes examples, which are bytes and a number, into a folder.


def write_grain(examples: Iterable[tuple[bytes, int]], count: int, folder: Path, files: int) -> None:
    """Write ArrayRecord files, whose records are the number and the bytes."""
    from array_record.python.array_record_module import ArrayRecordWriter

    options = "group_size:1,uncompressed"
    writers = [ArrayRecordWriter(f"{folder}/{number:02}.array_record", options) for number in range(files)]
    for index, (data, number) in enumerate(examples):
        writers[index % files].write(number.to_bytes(ID_BYTES, "big") + data)
    for writer in writers:
        writer.close()


def write_webdataset(examples: Iterable[tuple[bytes, int]], count: int, folder: Path, files: int) -> None:
    import webdataset

    pattern = f"{folder}/%02d.tar"
    with webdataset.ShardWriter(pattern, maxcount=-(-count // files), verbose=0) as writer:
        for index, (data, number) in enumerate(examples):
            writer.write({"__key__": str(index), "bin": data, "cls": str(number).encode()})


def write_mds(examples: Iterable[tuple[bytes, int]], count: int, folder: Path, files: int) -> None:
    import streaming

    rows = iter(examples)
    first = next(rows)
    columns, limit = {"data": "bytes", "label": "int"}, -(-count // files) * (len(first[0]) + 16)
    with streaming.MDSWriter(out=str(folder), columns=columns, size_limit=limit) as writer:
        for data, number in chain([first], rows):
            writer.write({"data": data, "label": number})


def write_litdata(examples: Iterable[tuple[bytes, int]], count: int, folder: Path, files: int) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(folder), chunk_size=-(-count // files))
    for index, (data, number) in enumerate(examples):
        writer[index] = {"data": data, "label": number}
    writer.done()
    writer.merge()


def write_datasets(examples: Iterable[tuple[bytes, int]], count: int, folder: Path, files: int) -> None:
    import datasets

    data, numbers = zip(*examples, strict=True)
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"label": numbers, "data": data}).save_to_disk(folder, num_shards=files)


def write_tfshards(examples: Iterable[tuple[bytes, int]], count: int, folder: Path, files: int) -> None:
    import numpy as np

    from tfshards import prep

    data, numbers = zip(*examples, strict=True)
    payloads = np.array([np.frombuffer(each, np.uint8) for each in data])
    prep.build(prep.Arrays({"label": np.array(numbers), "data": payloads}), folder, shards=files)


# Training runs. Each function yields the steps from the beginning, or from a checkpoint saved in ``epoch``.


def steps_tfshards(folder: Path, run: Run, epoch: int, state: dict | None) -> Iterator[Step]:
    """Call ``loader.load`` for each worker, resumed at the ``Position`` of a ``Progress``."""
    from tfshards import loader

    progress = [
        loader.Progress(loader.Position.from_json(state) if state else None) for _ in range(run.workers)
    ]
    datasets = [
        loader.load(
            folder,
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
        ids = [number for batch in batches for number in batch["label"].numpy().tolist()]
        yield Step(epoch, ids, lambda: progress[0].position.to_json())


def steps_grain(folder: Path, run: Run, epoch: int, state: list | None) -> Iterator[Step]:
    """Shuffle, slice by worker, and iterate over a MapDataset.

    https://google-grain.readthedocs.io/en/latest/tutorials/dataset_basic_tutorial.html: ``shuffle``,
    ``ds[i::n]`` for processes, ``to_iter_dataset``, ``get_state``, ``set_state``; ``mp_prefetch`` for
    processes. A change of the number of workers needs ``grain.experimental.ElasticIterator``, one state of
    which fits all workers.
    """
    import grain
    from absl import flags

    # its worker processes read flags
    flags.FLAGS.mark_as_parsed()
    source = grain.sources.ArrayRecordDataSource([str(path) for path in sorted(folder.iterdir())])
    # shuffle() gives each repetition its own order.
    examples = grain.MapDataset.source(source).map(_grain_id).seed(SEED).shuffle().repeat(EPOCHS)
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
            part = examples[index :: run.workers].batch(run.batch_size, drop_remainder=True)
            dataset = part.to_iter_dataset()
            if processes:
                dataset = dataset.mp_prefetch(processes)
        iterators.append(iter(dataset))
    if state:
        for index, iterator in enumerate(iterators):
            iterator.set_state(state[0] if run.elastic else state[index])
    done = state[-1] if state else 0
    try:
        for batches in zip(*iterators, strict=True):
            epoch, done = done // (EXAMPLES // GLOBAL_BATCH_SIZE), done + 1
            ids = [int(number) for batch in batches for number in batch]
            # The number of steps is the training loop's own count: the iterator is one long epoch.
            yield Step(epoch, ids, lambda done=done: [*(each.get_state() for each in iterators), done])
    finally:
        for iterator in iterators:
            iterator.close()


def _grain_id(record: bytes) -> int:
    return int.from_bytes(record[:ID_BYTES], "big")


def steps_litdata(folder: Path, run: Run, epoch: int, state: list | None) -> Iterator[Step]:
    """Use StreamingDataset and StreamingDataLoader, whose ``state_dict`` each worker saves.

    https://github.com/Lightning-AI/litData#pause-resume: "num_workers and world_size may change: LitData
    drops a global sample_in_epoch prefix and restripes the rest (never duplicates remaining IDs)".
    """
    import litdata

    loaders = []
    for index in range(run.workers):
        with _rank(index, run.workers):
            dataset = litdata.StreamingDataset(str(folder), shuffle=True, drop_last=True, seed=SEED)
            loader = litdata.StreamingDataLoader(
                dataset, batch_size=run.batch_size, num_workers=run.processes, drop_last=True
            )
            if state:
                loader.load_state_dict(state[index] if len(state) == run.workers else state[0])
        loaders.append(loader)
    for number in range(epoch, EPOCHS):
        iterators = []
        for index, loader in enumerate(loaders):
            with _rank(index, run.workers):
                iterators.append(iter(loader))
        while True:
            batches = []
            for index, iterator in enumerate(iterators):
                with _rank(index, run.workers):
                    batches.append(next(iterator, None))
            if batches.count(None) == len(batches):
                break
            if None in batches:
                raise RuntimeError("workers had different numbers of batches")
            ids = [example for batch in batches for example in batch["label"].tolist()]
            yield Step(number, ids, lambda: [each.state_dict() for each in loaders])


@contextmanager
def _rank(index: int, count: int) -> Iterator[None]:
    """Be one of several workers, as litData's ``_DistributedEnv.detect`` finds it."""
    os.environ.update(GLOBAL_RANK=str(index), WORLD_SIZE=str(count), NNODES="1")
    try:
        yield
    finally:
        for name in ("GLOBAL_RANK", "WORLD_SIZE", "NNODES"):
            del os.environ[name]


def steps_datasets(folder: Path, run: Run, epoch: int, state: list | None) -> Iterator[Step]:
    """Use an IterableDataset of Hugging Face with a shuffle buffer, in torchdata's StatefulDataLoader.

    The documentation of ``IterableDataset.state_dict`` (https://huggingface.co/docs/datasets/stream) uses
    that of the loader, which has the dataset's in it, and states that the examples of shuffle buffers are
    lost. Nothing there offers to resume on another number of nodes.
    """
    import datasets
    from datasets.distributed import split_dataset_by_node

    stored = datasets.load_from_disk(str(folder)).select_columns(["label"])
    shuffled = stored.to_iterable_dataset(num_shards=FILES).shuffle(seed=SEED, buffer_size=BUFFER)
    parts = [split_dataset_by_node(shuffled, index, run.workers) for index in range(run.workers)]
    yield from _stateful_steps(parts, parts, [None] * run.workers, run, epoch, state)


def steps_datasets_map(folder: Path, run: Run, epoch: int, state: list | None) -> Iterator[Step]:
    """Read a dataset of Hugging Face by index, by torchdata's StatefulDistributedSampler.

    https://meta-pytorch.org/data/main/torchdata.stateful_dataloader.html; there is no shuffle buffer.
    """
    import datasets
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    stored = datasets.load_from_disk(str(folder)).select_columns(["label"])
    samplers = [
        StatefulDistributedSampler(stored, run.workers, index, shuffle=True, seed=SEED, drop_last=True)
        for index in range(run.workers)
    ]
    yield from _stateful_steps([stored] * run.workers, samplers, samplers, run, epoch, state)


def _stateful_steps(
    parts: list, shuffled: list, samplers: list, run: Run, epoch: int, state: list | None
) -> Iterator[Step]:
    """Yield the steps of one StatefulDataLoader for each worker."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    shared = {"batch_size": run.batch_size, "num_workers": run.processes, "drop_last": True}
    loaders = [
        StatefulDataLoader(part, sampler=sampler, **shared)
        for part, sampler in zip(parts, samplers, strict=True)
    ]
    for loader, saved in zip(loaders, state or (), strict=bool(state)):
        loader.load_state_dict(saved)
    for number in range(epoch, EPOCHS):
        for each in shuffled:
            each.set_epoch(number)
        for batches in zip(*loaders, strict=True):
            ids = [example for batch in batches for example in batch["label"].tolist()]
            yield Step(number, ids, lambda: [loader.state_dict() for loader in loaders])


def steps_mds(folder: Path, run: Run, epoch: int, state: dict | None) -> Iterator[Step]:
    """Use StreamingDataset and StreamingDataLoader in one process for each worker.

    https://docs.mosaicml.com/projects/streaming/en/stable/distributed_training/fast_resumption.html: all
    workers load the state of the first; elastic_determinism.html: the same order for more or fewer workers.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children, pipes = [], []
    try:
        for index in range(run.workers):
            here, there = Pipe()
            child = os.fork()
            if not child:
                # Otherwise the workers before this one would not see the end of their pipes.
                for pipe in (here, *pipes):
                    pipe.close()
                _be_mds_worker(there, index, port, folder, run, epoch, state)
            there.close()
            children.append(child)
            pipes.append(here)
        while True:
            for pipe in pipes:
                pipe.send("next")
            found = [pipe.recv() for pipe in pipes]
            for each in found:
                if isinstance(each, Exception):
                    raise each
            if found[0] is None:
                break
            yield Step(found[0][0], [each for _, ids in found for each in ids], lambda: _state(pipes[0]))
    except TimeoutError:
        # They wait for each other in a barrier, and do not look at their pipes.
        for child in children:
            os.kill(child, signal.SIGKILL)
        raise
    finally:
        for pipe in pipes:
            pipe.close()
        for child in children:
            os.waitpid(child, 0)


def _state(pipe: Connection) -> dict:
    pipe.send("state")
    return pipe.recv()


def _be_mds_worker(
    pipe: Connection, index: int, port: int, folder: Path, run: Run, epoch: int, state: dict | None
) -> None:
    """Answer requests until the pipe is closed, then exit."""
    status, rank, size = 1, str(index), str(run.workers)
    try:
        os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=size, LOCAL_WORLD_SIZE=size)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        import streaming
        import torch.distributed
        from streaming.base.util import clean_stale_shared_memory

        if run.workers > 1:
            torch.distributed.init_process_group("gloo")
        clean_stale_shared_memory()
        dataset = streaming.StreamingDataset(
            local=str(folder), shuffle=True, shuffle_seed=SEED, batch_size=run.batch_size
        )
        loader = streaming.StreamingDataLoader(
            dataset, batch_size=run.batch_size, num_workers=run.processes, drop_last=True
        )
        if state:
            loader.load_state_dict(state)
        batches = ((number, batch["label"].tolist()) for number in range(epoch, EPOCHS) for batch in loader)
        while True:
            pipe.send(next(batches, None) if pipe.recv() == "next" else loader.state_dict())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        status = 0
    except Exception as error:
        pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))
    finally:
        pipe.close()
        os._exit(status)


class Reader(NamedTuple):
    """The reader of a tool.

    Attributes:
        title: the name of the tool in tables.
        write: the function of its format.
        steps: the function of its training runs.
        elastic: whether the number of workers may change when a run resumes.
        processes: whether workers may read ahead with processes of their own.
    """

    title: str
    write: Callable[[Iterable[tuple[bytes, int]], int, Path, int], None]
    steps: Callable[[Path, Run, int, Any], Iterator[Step]]
    elastic: bool
    processes: bool


READERS = {
    # threads of TensorFlow read ahead, always; there are no other processes
    "tfshards": Reader("tfshards", write_tfshards, steps_tfshards, elastic=True, processes=False),
    "grain": Reader("Grain, ArrayRecord", write_grain, steps_grain, elastic=True, processes=True),
    "mds": Reader("MosaicML streaming", write_mds, steps_mds, elastic=True, processes=True),
    "litdata": Reader("litData", write_litdata, steps_litdata, elastic=True, processes=True),
    "datasets": Reader(
        "HF datasets, shuffle buffer", write_datasets, steps_datasets, elastic=False, processes=True
    ),
    "datasets-map": Reader(
        "HF datasets by index, torchdata", write_datasets, steps_datasets_map, elastic=False, processes=True
    ),
}
