"""One run read by ``load``, ``batches`` and each adapter; a program, so that each framework has its process.

    python -m tests.loader.readers compare READER CASES DIGESTS
    python -m tests.loader.readers follow READER OPTIONS PROGRESS LOG

``compare`` writes a digest of each batch of each case. ``follow`` resumes a run at the position in PROGRESS,
replaces it after each batch, and appends a line to LOG. Cases and options are pickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tfshards import loader
from tfshards.loader import Position


def of_load(**options):
    progress = loader.Progress(options.pop("start", None))
    for batch in loader.load(start=progress, **options):
        progress.advance()
        yield [each.numpy() for each in batch], progress.position


def of_batches(**options):
    run = loader.batches(**options)
    for batch in run:
        yield batch, run.position


def of_torch(processes):
    def read(**options):
        from torch.utils.data import DataLoader

        dataset = loader.torch.Batches(**options)
        start = options.get("start") or Position()
        taken = start.epoch * dataset.steps_per_epoch + start.step
        for batch in DataLoader(dataset, batch_size=None, num_workers=processes):
            taken += 1
            yield [each.numpy() for each in batch], Position(*divmod(taken, dataset.steps_per_epoch))

    return read


def of_grain(**options):
    import grain

    source = loader.grain.source(**options)
    iterator = iter(grain.MapDataset.source(source).to_iter_dataset())
    for batch in iterator:
        yield batch, source.position(iterator.get_state()["next_index"])


def of_jax(**options):
    import jax

    jax.config.update("jax_enable_x64", True)
    run = loader.jax.batches(**options)
    for batch in run:
        yield [np.asarray(each) for each in batch], run.position


READERS = {
    "load": of_load,
    "batches": of_batches,
    "torch": of_torch(0),
    "torch in two processes": of_torch(2),
    "grain": of_grain,
    "jax": of_jax,
}


def digest(*arrays):
    """Return a digest of types, shapes and values."""
    found = hashlib.blake2b(digest_size=12)
    for array in arrays:
        array = np.ascontiguousarray(array)
        found.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def rows_of(batch):
    """Return a digest of each row by its number and its weight; padding repeats an example with weight 0."""
    return {f"{row[0]} {row[3:]}": digest(*row[1:]) for row in zip(*batch, strict=True)}


def compare(reader, cases, digests):
    found = []
    for options in pickle.loads(Path(cases).read_bytes()):
        found.append([digest(*batch) for batch, _ in READERS[reader](**options)])
    Path(digests).write_text(json.dumps(found))


def follow(reader, options, progress, log):
    options, progress = pickle.loads(Path(options).read_bytes()), Path(progress)
    position = Position()
    if progress.exists():
        position = options["start"] = Position.from_json(json.loads(progress.read_text()))
    with open(log, "a", encoding="utf-8") as lines:
        for batch, after in READERS[reader](**options):
            rows = rows_of(batch)
            print(json.dumps([position.epoch, position.step, rows]), file=lines, flush=True)
            if options["worker"].index == 0:
                made = progress.with_suffix(".new")
                made.write_text(json.dumps(after.to_json()))
                os.replace(made, progress)
            position = after
            # a step of training
            time.sleep(0.005)


def lines_of(log: Path) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Yield epoch, step and rows of the batches that a reader logged, without a line that was cut."""
    if log.exists():
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield tuple(json.loads(line))


if __name__ == "__main__":
    # of damage, and of processes that are forked while JAX or Grain have threads
    warnings.simplefilter("ignore")
    {"compare": compare, "follow": follow}[sys.argv[1]](*sys.argv[2:])
