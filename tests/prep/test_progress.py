"""Progress: reports of workers, a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import socket
import struct
import termios
import threading
import time

import pytest

from tfshards.prep.progress import lines as progress
from tfshards.prep.progress.lines import Progress, Reporter
from tfshards.schemas.sizes import size


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (int(2.25 * (1 << 30)), "2.2 GiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 50, "1024.0 TiB"),
    ],
)
def test_sizes_are_printed_with_units(num_bytes, shown):
    assert size(num_bytes) == shown


def follow(shown: Progress, work: object) -> None:
    def run() -> None:
        work()
        shown.end()

    thread = threading.Thread(target=run)
    thread.start()
    shown.follow()
    thread.join()


def test_a_reporter_without_a_port_sends_nothing():
    Reporter().report(1, 1)


def test_a_report_without_a_receiver_is_not_an_error():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    Reporter(port, "token").report(1, 1)


def test_lines_show_examples_bytes_rate_and_time_left(monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)
    stream = io.StringIO()
    shown = Progress("photos", 400, stream)

    def work() -> None:
        for _ in range(4):
            shown.reporter.report(100, 1 << 20)
            time.sleep(0.15)

    follow(shown, work)
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("photos: 100 of 400 examples, 1.0 MiB, ")
    assert lines[-1].startswith("photos: 400 of 400 examples, 4.0 MiB, ")
    assert lines[-1].endswith(" examples/s, 0 s left")
    assert all(line.split(", ")[2].endswith(" examples/s") for line in lines)


def test_before_the_first_report_the_time_left_is_unknown(monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)
    stream = io.StringIO()
    follow(Progress("photos", 400, stream), lambda: time.sleep(0.3))
    assert (
        stream.getvalue().splitlines()[0] == "photos: 0 of 400 examples, 0 B, 0 examples/s, time left unknown"
    )


def test_a_build_of_less_than_ten_seconds_prints_no_lines():
    stream = io.StringIO()
    shown = Progress("photos", 400, stream)
    follow(shown, lambda: shown.reporter.report(400, 1))
    assert stream.getvalue() == ""


def test_a_bar_on_a_terminal_counts_to_the_end():
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    with os.fdopen(follower, "w") as terminal:
        shown = Progress("photos", 400, terminal)

        def work() -> None:
            for _ in range(4):
                shown.reporter.report(100, 1 << 20)
                time.sleep(0.15)

        follow(shown, work)
    written = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "photos:  25%" in written
    assert "photos: 100%" in written
    assert written.rstrip().endswith("4.0 MiB]")


def test_foreign_packets_at_the_port_are_not_counted(monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)
    stream = io.StringIO()
    shown = Progress("photos", 400, stream)

    def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for datagram in (
                b"",
                b"\xff\xff",
                b"token 100 100",
                b"100",
                shown.reporter.token.encode() + b" 100",
            ):
                sender.sendto(datagram, ("127.0.0.1", shown.reporter.port))
        shown.reporter.report(7, 1)
        time.sleep(0.3)

    follow(shown, work)
    assert stream.getvalue().splitlines()[-1].startswith("photos: 7 of 400 examples, 1 B, ")
