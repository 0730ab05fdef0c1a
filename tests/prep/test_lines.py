"""Status lines and warnings reach the ``log`` of the public call that reports them, and no other."""

import threading

import numpy as np

from tests.reported import logged
from tfshards.prep import Arrays, build


def test_builds_in_two_threads_report_to_their_own_logs(tmp_path):
    barrier = threading.Barrier(2)
    lines: dict[str, list[str]] = {"a": [], "b": []}

    def run(name: str, count: int) -> None:
        def log(line: str) -> None:
            # no build is ahead of the other by more than a line
            barrier.wait(timeout=60)
            lines[name].append(line)

        for seed in (1, 2):
            source = Arrays({"x": np.arange(count)})
            logged(build, log)(source, tmp_path / name, shards=2, seed=seed, overwrite=True, engine="local")

    threads = [threading.Thread(target=run, args=each) for each in (("a", 10), ("b", 20))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, other, count in (("a", "b", 10), ("b", "a", 20)):
        text = "\n".join(lines[name])
        assert text.count(f"starting build: {count} examples") == 2
        assert str(tmp_path / name) in text
        assert str(tmp_path / other) not in text
        assert len(lines[name]) == len(lines[other])
