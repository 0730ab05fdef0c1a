"""Status lines and warnings reach the ``log`` of the public call that reports them, and no other."""

import io
import threading

import numpy as np
import pytest

from tfshards.prep import Arrays, build
from tfshards.prep.progress.console import Console, reporting
from tfshards.prep.progress.lines import Log, report_line, report_warning, takes_log, to_stderr
from tfshards.prep.progress.threads import in_threads


@takes_log
def inner(*, log: Log = to_stderr) -> None:
    report_line("status of inner")


@takes_log
def outer(of_inner: Log | None = None, *, log: Log = to_stderr) -> None:
    report_warning("warning of outer")
    inner(**{} if of_inner is None else {"log": of_inner})
    report_line("end of outer")


@takes_log
def silent(*, log: Log = lambda _: None) -> None:
    report_line("dropped")


@takes_log
def failing(*, log: Log = to_stderr) -> None:
    report_line("begin")
    raise ValueError("end")


def test_a_call_inside_of_another_reports_to_its_log(log):
    outer(log=log.append)
    assert log == ["warning: warning of outer", "status of inner", "end of outer"]


def test_a_call_inside_of_another_may_have_its_own_log(log):
    others: list[str] = []
    outer(others.append, log=log.append)
    assert log == ["warning: warning of outer", "end of outer"]
    assert others == ["status of inner"]


def test_a_log_is_used_until_its_call_ends(log):
    stream = io.StringIO()
    with reporting(Console(stream)):
        with pytest.raises(ValueError, match="end"):
            failing(log=log.append)
        silent()
        silent(log=log.append)
        outer()
    assert log == ["begin", "dropped"]
    assert stream.getvalue() == "warning: warning of outer\nstatus of inner\nend of outer\n"


def test_threads_of_a_call_report_to_its_log(log):
    @takes_log
    def threaded(*, log: Log = to_stderr) -> None:
        in_threads(lambda number, tick: report_line(f"line {number}"), range(3), lambda _: None)

    threaded(log=log.append)
    assert sorted(log) == ["line 0", "line 1", "line 2"]


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
            build(source, tmp_path / name, shards=2, seed=seed, overwrite=True, engine="local", log=log)

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
