"""Progress: reports of workers, a bar on a terminal, plain lines elsewhere."""

import fcntl
import io
import os
import pty
import re
import socket
import struct
import termios
import threading
import time

import pytest

from tfshards.prep.progress import bars
from tfshards.prep.progress import lines as progress
from tfshards.prep.progress.console import Console, reporting
from tfshards.prep.progress.lines import Meter, Reporter, WorkProgress, Written


@pytest.fixture
def stream():
    """The stream of the console of the process."""
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


def test_a_report_without_a_receiver_is_not_an_error():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    Reporter(port, "token").report(1, 1)


def test_lines_show_examples_bytes_rate_and_time_left(monkeypatch, stream):
    monkeypatch.setattr(bars, "LINE_SECONDS", 0.05)
    shown = WorkProgress("photos", 400)

    def work() -> None:
        for _ in range(4):
            time.sleep(0.15)
            shown.reporter.report(100, 1 << 20)
        time.sleep(0.15)

    follow(shown, work)
    first, *lines = stream.getvalue().splitlines()
    assert first == "photos: 0 of 400 examples, 0 B, 0 examples/s, time left unknown"
    assert lines[-1].startswith("photos: 400 of 400 examples, 4.0 MiB, ")
    assert lines[-1].endswith(" examples/s, 0 s left")


def test_a_build_of_less_than_ten_seconds_prints_no_lines(stream):
    shown = WorkProgress("photos", 400)
    follow(shown, lambda: shown.reporter.report(400, 1))
    assert stream.getvalue() == ""


def test_foreign_packets_at_the_port_are_not_counted(monkeypatch, stream):
    monkeypatch.setattr(bars, "LINE_SECONDS", 0.05)
    shown = WorkProgress("photos", 400)

    def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for data in (b"", b"\xff\xff", b"token 100 100", b"100", shown.reporter.token.encode() + b" 100"):
                sender.sendto(data, ("127.0.0.1", shown.reporter.port))
        shown.reporter.report(7, 1)
        time.sleep(0.3)

    follow(shown, work)
    assert stream.getvalue().splitlines()[-1].startswith("photos: 7 of 400 examples, 1 B, ")


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(bars, "LINE_SECONDS", 0.05)
    monkeypatch.setattr(progress, "MEASURE_SECONDS", 0.0)


def test_a_measure_replaces_the_reports_of_workers(fast, stream):
    shown = WorkProgress("photos", 400)
    # a task that is repeated begins anew, and progress never goes back
    measures = iter([Written(100, 1 << 20), Written(300, 3 << 20), *[Written(200, 0)] * 1000])

    def work() -> None:
        shown.reporter.report(7, 7)
        time.sleep(0.5)

    follow(shown, work, lambda: next(measures))
    lines = stream.getvalue().splitlines()
    assert all(line.startswith(("photos: 100 of", "photos: 300 of 400")) for line in lines)
    assert lines[-1].startswith("photos: 300 of 400 examples, 3.0 MiB, ")


def test_the_time_until_the_first_progress_does_not_count_for_the_rate(fast, stream):
    shown = WorkProgress("photos", 1000)
    started = time.monotonic()

    def measure() -> Written:
        seconds = time.monotonic() - started
        # workers start late, and then write 100 examples/s
        return Written(int(100 * max(0.0, seconds - 1)), 0)

    follow(shown, lambda: time.sleep(2.5), measure)
    rate = int(stream.getvalue().splitlines()[-1].split(", ")[2].split()[0])
    # over the whole time, the rate would be 60 at most
    assert 75 <= rate <= 125


def test_an_error_of_the_measure_ends_the_progress(fast, stream):
    def fail() -> Written:
        raise ValueError("a worker has failed")

    with pytest.raises(ValueError, match="a worker has failed"):
        WorkProgress("photos", 400).follow(fail)


def test_a_job_without_progress_is_reported_with_where_to_look(monkeypatch, stream):
    monkeypatch.setattr(progress, "STALL_SECONDS", 0.2)
    shown = WorkProgress("photos", 400)
    follow(shown, lambda: time.sleep(1.0), None, lambda: "see the job 7")
    # after 0.2, 0.4 and 0.8 seconds, and not more often
    lines = stream.getvalue().splitlines()
    assert 1 <= len(lines) <= 3
    assert all(re.fullmatch(r"photos: no progress for \d+ s; see the job 7", line) for line in lines)


def test_a_bar_is_interrupted_by_the_line_about_a_stall(monkeypatch, fast):
    monkeypatch.setattr(progress, "STALL_SECONDS", 0.3)
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    with os.fdopen(follower, "w") as terminal, reporting(Console(terminal)):
        measures = iter([Written(100, 1), *[Written(200, 2)] * 1000])
        follow(WorkProgress("photos", 400), lambda: time.sleep(0.9), lambda: next(measures))
    written = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "photos: no progress for 0 s\r\n" in written
    assert "photos:  50%" in written


def test_reading_on_a_terminal_shows_a_bar_that_is_erased_at_the_end():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with reporting(Console(stream)), Meter("verify", 3 << 20) as bar:
        bar.add(1 << 20)
        bar.add(2 << 20)
    assert "verify:" in stream.getvalue()
    assert "/3.00M" in stream.getvalue()
    assert stream.getvalue().endswith("\r")


@pytest.mark.parametrize(
    ("seconds", "done", "line"),
    [
        (0.0, 1 << 20, r"verify: 1\.0 MiB of 4\.0 MiB, \S+ \S?i?B/s, \d+ s left\n"),
        (0.0, 0, r"verify: 0 B of 4\.0 MiB, 0 B/s, time left unknown\n"),
        (10.0, 1 << 20, ""),
    ],
)
def test_long_reading_prints_lines_at_intervals(seconds, done, line, monkeypatch, stream):
    monkeypatch.setattr(bars, "LINE_SECONDS", seconds)
    with Meter("verify", 4 << 20) as lines:
        lines.add(done)
    assert re.fullmatch(line, stream.getvalue())
