"""A dataset made from another on a real engine, after a worker was killed; see tests/verbs for the others."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tfshards import prep

from .builds import NUM_SHARDS, Build, contents, running

pytestmark = pytest.mark.engines
# Noise takes long to compress, so that there is time to kill a worker.
OPTIONS = prep.ShardOptions(compression="gzip")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of 200 MB."""
    rows = np.random.default_rng(0).integers(0, 256, (20_000, 10_000), dtype=np.uint8)
    folder = tmp_path_factory.mktemp("old") / "old"
    prep.build(prep.Arrays({"x": rows}), folder, shards=5, log=print)
    return folder


@pytest.fixture(scope="module")
def expected(old: Path) -> dict[str, bytes]:
    """Return the files of the resharded dataset."""
    out = old.parent / "local" / "data"
    prep.reshard(old, out, shards=NUM_SHARDS, options=OPTIONS, engine="local", log=print)
    return contents(out)


def reshard(
    old: Path, folder: Path, options: list[str], disturb: Callable[[Build], None]
) -> dict[str, bytes]:
    """Reshard on an engine, and return the files that it has written."""
    # fmt: off
    command = [
        sys.executable, "-m", "tfshards", "reshard", old, folder / "data", f"--shards={NUM_SHARDS}",
        "--compression=gzip", "--", *options,
    ]
    # fmt: on
    with running(command, folder / "data", folder / "logs") as reshard:
        disturb(reshard)
        status = reshard.wait()
    print(f"status {status} after {reshard.seconds:.0f} s\n{reshard.service.tail()}")
    assert status == 0
    assert reshard.num_written_twice() == 0
    return contents(folder / "data")


@pytest.mark.parametrize("engine", ["flink"], indirect=True)
def test_a_reshard_recovers_after_a_python_worker_was_killed(engine, old, expected, tmp_path):
    def kill_worker(reshard: Build) -> None:
        reshard.wait_for_finished(2)
        os.kill(engine.busy_pool().workers()[0], signal.SIGKILL)

    assert reshard(old, tmp_path, engine.options, kill_worker) == expected
