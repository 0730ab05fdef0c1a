"""Progress: what is counted, and lines about a job that makes none; tests/surface looks at bars."""

import io
import re
import socket
import threading
import time

import pytest

from tfshards.prep.progress import bars
from tfshards.prep.progress import lines as progress
from tfshards.prep.progress.console import Console, reporting
from tfshards.prep.progress.lines import WorkProgress, Written


@pytest.fixture
def stream(monkeypatch):
    """The stream of the console of the process, with frequent lines."""
    monkeypatch.setattr(bars, "LINE_SECONDS", 0.05)
    monkeypatch.setattr(progress, "MEASURE_SECONDS", 0.0)
    stream = io.StringIO()
    with reporting(Console(stream)):
        yield stream


def follow(shown: WorkProgress, work: object, *arguments: object) -> None:
    def run() -> None:
        work()
        shown.end()

    thread = threading.Thread(target=run)
    thread.start()
    shown.follow(*arguments)
    thread.join()


def test_foreign_packets_at_the_port_are_not_counted(stream):
    shown = WorkProgress("photos", 400)

    def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for data in (b"", b"\xff\xff", b"token 100 100", b"100", shown.reporter.token.encode() + b" 100"):
                sender.sendto(data, ("127.0.0.1", shown.reporter.port))
        shown.reporter.report(7, 1)
        time.sleep(0.3)

    follow(shown, work)
    assert stream.getvalue().splitlines()[-1].startswith("photos: 7 of 400 examples, 1 B, ")


def test_a_measure_replaces_the_reports_of_workers_and_never_goes_back(stream):
    shown = WorkProgress("photos", 400)
    # a task that is repeated begins anew
    measures = iter([Written(100, 1 << 20), Written(300, 3 << 20), *[Written(200, 0)] * 1000])

    def work() -> None:
        shown.reporter.report(7, 7)
        time.sleep(0.5)

    follow(shown, work, lambda: next(measures))
    lines = stream.getvalue().splitlines()
    assert all(line.startswith(("photos: 100 of", "photos: 300 of 400")) for line in lines)
    assert lines[-1].startswith("photos: 300 of 400 examples, 3.0 MiB, ")


def test_a_job_without_progress_is_reported_with_where_to_look(monkeypatch, stream):
    monkeypatch.setattr(bars, "LINE_SECONDS", 10)
    monkeypatch.setattr(progress, "STALL_SECONDS", 0.2)
    shown = WorkProgress("photos", 400)
    follow(shown, lambda: time.sleep(1.0), None, lambda: "see the job 7")
    # after 0.2, 0.4 and 0.8 seconds, and not more often
    lines = stream.getvalue().splitlines()
    assert 1 <= len(lines) <= 3
    assert all(re.search("no progress .*see the job 7", line) for line in lines)
