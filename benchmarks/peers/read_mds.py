"""MosaicML streaming: StreamingDataset and StreamingDataLoader in one process for each worker.

https://docs.mosaicml.com/projects/streaming/en/stable/distributed_training/fast_resumption.html: all workers
load the state of the first; elastic_determinism.html: the same order for other numbers of workers.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import streaming
import torch.distributed
from streaming.base.util import clean_stale_shared_memory

from peers.readers import EPOCHS, EXAMPLES, FILES, PAYLOAD_BYTES, SEED, Run, Step, payload

ELASTIC, PROCESSES = True, True


def write(folder: Path) -> None:
    columns = {"id": "int", "payload": "bytes"}
    limit = EXAMPLES // FILES * (PAYLOAD_BYTES + 16)
    with streaming.MDSWriter(out=str(folder / "data"), columns=columns, size_limit=limit) as writer:
        for number in range(EXAMPLES):
            writer.write({"id": number, "payload": payload(number)})


def steps(folder: Path, run: Run, epoch: int, state: dict | None) -> Iterator[Step]:
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
                _be_worker(there, index, port, folder, run, epoch, state)
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


def _be_worker(
    pipe: Connection, index: int, port: int, folder: Path, run: Run, epoch: int, state: dict | None
):
    """Answer requests until the pipe is closed, then exit."""
    status = 1
    try:
        os.environ.update(
            RANK=str(index),
            LOCAL_RANK=str(index),
            WORLD_SIZE=str(run.workers),
            LOCAL_WORLD_SIZE=str(run.workers),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
        if run.workers > 1:
            torch.distributed.init_process_group("gloo")
        clean_stale_shared_memory()
        dataset = streaming.StreamingDataset(
            local=str(folder / "data"), shuffle=True, shuffle_seed=SEED, batch_size=run.batch_size
        )
        loader = streaming.StreamingDataLoader(
            dataset, batch_size=run.batch_size, num_workers=run.processes, drop_last=True
        )
        if state:
            loader.load_state_dict(state)
        batches = ((number, batch["id"].tolist()) for number in range(epoch, EPOCHS) for batch in loader)
        while True:
            pipe.send(next(batches, None) if pipe.recv() == "next" else loader.state_dict())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        status = 0
    except Exception as error:
        pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))
    finally:
        pipe.close()
        os._exit(status)
