"""Stop and resume the training runs of one tool, in its own environment; prints JSON.

Usage: python stop_runs.py TOOL FOLDER --stops 980 --kills 20 --processes 50 --seed 0
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import re
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

import readers
from readers import EPOCHS, EXAMPLES, GLOBAL_BATCH_SIZE, WORKER_COUNTS, Reader, Run

# A resumed run that takes longer than this many seconds hangs; undisturbed ones take a few.
LIMIT = 120
# A killed run saved its last checkpoint up to this many steps before.
SAVE_EVERY = 5
STEPS = EPOCHS * EXAMPLES // GLOBAL_BATCH_SIZE
# The steps of a run with their checkpoints, pickled.
Steps = list[tuple[int, list[int], bytes]]
# The ids of the examples of each global batch of an epoch, by epoch.
Epochs = Mapping[int, Sequence[Sequence[int]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tool", choices=readers.READERS)
    parser.add_argument("folder", type=Path, help="where to write the dataset; must not exist")
    parser.add_argument("--stops", type=int, default=0, help="number of stops within this process")
    parser.add_argument("--processes", type=int, default=0, help="of these, with two processes a worker")
    parser.add_argument("--kills", type=int, default=0, help="number of killed processes")
    parser.add_argument("--seed", type=int, default=0, help="seed of what is stopped where")
    options = parser.parse_args()
    reader, data = readers.READERS[options.tool], options.folder / "data"
    data.mkdir(parents=True)
    # Killed processes are forked from this one, which must not have threads of a tool yet.
    in_a_process(lambda: reader.write(readers.examples(), EXAMPLES, data, readers.FILES), lambda: False)
    pick = random.Random(f"{options.tool} {options.seed}")
    rows = {}
    if options.kills:
        rows["killed"] = kill_runs(reader, data, options.kills, pick)
    rows.update(stop_runs(reader, data, options.stops, options.processes, pick))
    print(json.dumps(rows))


def stop_runs(reader: Reader, folder: Path, stops: int, processes: int, pick: random.Random) -> dict:
    """Return a summary for each kind of stop: the same number of workers, another one, and with processes."""
    of_kind = {"same": stops, "processes": processes if reader.processes else 0}
    of_kind["same"] -= of_kind["processes"]
    if reader.elastic:
        of_kind["changed"] = of_kind["same"] // 2
        of_kind["same"] -= of_kind["changed"]
    rows = {}
    for kind, count in of_kind.items():
        started = time.perf_counter()
        undisturbed: dict[Run, Steps] = {}
        differences, errors = [], []
        for number in range(count):
            before = Run(pick.choice(WORKER_COUNTS), 2 * (kind == "processes"), kind == "changed")
            others = [workers for workers in WORKER_COUNTS if workers != before.workers]
            workers = pick.choice(others) if kind == "changed" else before.workers
            after = Run(workers, before.processes, before.elastic)
            if before not in undisturbed:
                undisturbed[before] = whole_run(reader, folder, before)
            stop = pick.randrange(1, STEPS)
            try:
                differences.append(resumed(reader, folder, undisturbed[before], stop, after))
            except Exception as error:
                errors.append(shown(error))
            if sys.stderr.isatty() or number % 50 == 49:
                print(f"{kind} {number + 1}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
        if count:
            rows[kind] = summary(differences, errors)
            rows[kind]["seconds"] = round(time.perf_counter() - started, 1)
    return rows


def whole_run(reader: Reader, folder: Path, run: Run) -> Steps:
    """Return the undisturbed run with the checkpoint after each step, which must not change what is read."""
    steps = [(step.epoch, step.ids, pickle.dumps(step.save())) for step in reader.steps(folder, run, 0, None)]
    plain = [(step.epoch, step.ids) for step in reader.steps(folder, run, 0, None)]
    if plain != [(epoch, ids) for epoch, ids, _ in steps]:
        raise RuntimeError(f"{run}: two undisturbed runs differ, or saving checkpoints changes what is read")
    for epoch, batches in joined(plain).items():
        delivered = sorted(each for batch in batches for each in batch)
        if delivered != list(range(EXAMPLES)):
            print(
                f"{run}, epoch {epoch}: {len(delivered)} deliveries of {len(set(delivered))} examples",
                file=sys.stderr,
            )
    return steps


def resumed(reader: Reader, folder: Path, steps: Steps, stop: int, after: Run) -> Difference:
    """Return how a run that is resumed after ``stop`` steps, with new objects, differs."""
    epoch, _, saved = steps[stop - 1]
    with limited(LIMIT):
        rest = [(step.epoch, step.ids) for step in reader.steps(folder, after, epoch, pickle.loads(saved))]
    plain = [(epoch, ids) for epoch, ids, _ in steps]
    return difference_of(joined(plain), joined(plain[:stop] + rest), stop)


def kill_runs(reader: Reader, folder: Path, kills: int, pick: random.Random) -> dict:
    """Return the summary of runs that are killed and start again from their last checkpoint."""
    started = time.perf_counter()
    whole: dict[int, list] = {}
    differences, errors = [], []
    for number in range(kills):
        run = Run(pick.choice(WORKER_COUNTS))
        if run.workers not in whole:
            log = folder.with_name(f"whole{run.workers}")
            in_a_process(lambda run=run, log=log: train(reader, folder, run, log), lambda: False)
            whole[run.workers] = read_log(log)
        log = folder.with_name(f"killed{number}")
        last = pick.randrange(1, STEPS - 1)
        try:

            def work(run: Run = run, log: Path = log) -> None:
                train(reader, folder, run, log)

            in_a_process(work, lambda log=log, last=last: len(read_log(log)) >= last)
            saved = log.with_suffix(".checkpoint")
            stop = pickle.loads(saved.read_bytes())[0] if saved.exists() else 0
            steps = read_log(log)[:stop]
            log.write_text("".join(json.dumps(step) + "\n" for step in steps))
            in_a_process(work, lambda: False)
            differences.append(difference_of(joined(whole[run.workers]), joined(read_log(log)), stop))
        except Exception as error:
            errors.append(shown(error))
    return summary(differences, errors) | {"seconds": round(time.perf_counter() - started, 1)}


def in_a_process(work: Callable[[], None], is_time: Callable[[], bool]) -> None:
    """Run ``work`` in processes of its own, which are all killed when ``is_time`` is true."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    begin = time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if is_time() or time.monotonic() - begin > LIMIT:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if not is_time():
                raise TimeoutError("the run hangs")
            return
        time.sleep(0.001)
    if status:
        raise RuntimeError(f"the run ended with status {os.waitstatus_to_exitcode(status)}")


def train(reader: Reader, folder: Path, run: Run, log: Path) -> None:
    """Train from the last checkpoint, or from the beginning, and log each step."""
    saved = log.with_suffix(".checkpoint")
    done, epoch, state = pickle.loads(saved.read_bytes()) if saved.exists() else (0, 0, None)
    with log.open("a") as lines:
        for step in reader.steps(folder, run, epoch, state):
            lines.write(json.dumps([step.epoch, step.ids]) + "\n")
            lines.flush()
            done += 1
            if done % SAVE_EVERY == 0:
                new = saved.with_suffix(".new")
                new.write_bytes(pickle.dumps((done, step.epoch, step.save())))
                new.rename(saved)
            time.sleep(0.002)


def read_log(log: Path) -> list[list]:
    """Return the steps in a log, without a last line that was not finished."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError after so many seconds."""

    def end(*_: object) -> None:
        raise TimeoutError("the resumed run hangs")

    signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def shown(error: Exception) -> str:
    """Return an error in one line without numbers, so that equal ones are counted together."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return re.sub(r"\d+", "N", text)[:200]


# What a resumed run did differently


@dataclass(frozen=True)
class Difference:
    """What a resumed run did differently from the undisturbed one.

    Attributes:
        lost: how many deliveries of an example are missing in their epoch.
        repeated: how many deliveries of an example are too many in their epoch.
        changed: batches whose examples, in any order, are not those of the undisturbed run at the same step.
        later: batches of the undisturbed run after the stop.
    """

    lost: int
    repeated: int
    changed: int
    later: int

    @property
    def is_exact(self) -> bool:
        """Whether the resumed run had exactly the undisturbed batches."""
        return not (self.lost or self.repeated or self.changed)


def difference_of(undisturbed: Epochs, resumed: Epochs, stop: int) -> Difference:
    """Return how ``resumed`` differs from ``undisturbed``.

    Args:
        undisturbed: all batches of the run that was not stopped.
        resumed: the batches before the stop, from whichever run, and those after it.
        stop: the number of batches before the stop.
    """
    lost = repeated = changed = 0
    for epoch in sorted({*undisturbed, *resumed}):
        expected, found = undisturbed.get(epoch, ()), resumed.get(epoch, ())
        wanted, given = _counts(expected), _counts(found)
        lost += (wanted - given).total()
        repeated += (given - wanted).total()
        changed += sum(
            left is None or right is None or sorted(left) != sorted(right)
            for left, right in zip_longest(expected, found)
        )
    return Difference(lost, repeated, changed, sum(map(len, undisturbed.values())) - stop)


def joined(steps: Iterable[tuple[int, Sequence[int]]]) -> dict[int, list[Sequence[int]]]:
    """Return the batches of ``steps``, pairs of an epoch and the ids of a batch, by epoch."""
    epochs: dict[int, list[Sequence[int]]] = {}
    for epoch, ids in steps:
        epochs.setdefault(epoch, []).append(ids)
    return epochs


def summary(differences: Sequence[Difference], errors: Sequence[str]) -> dict[str, object]:
    """Return the sums over all stops of one kind, and its errors with their counts, as JSON values."""
    zero = Difference(0, 0, 0, 0)
    total = {name: sum(asdict(each)[name] for each in differences) for name in asdict(zero)}
    exact = sum(each.is_exact for each in differences)
    return {
        "stops": len(differences) + len(errors),
        "failed": len(errors),
        "exact": exact,
        **total,
        "errors": dict(Counter(errors).most_common()),
    }


def _counts(batches: Sequence[Sequence[int]]) -> Counter[int]:
    return Counter(example for batch in batches for example in batch)


if __name__ == "__main__":
    main()
