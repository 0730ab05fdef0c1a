"""Progress of reading files: a bar on a terminal, lines otherwise."""

from __future__ import annotations

import io
import re

import pytest

from tfshards.prep.progress import bars
from tfshards.prep.progress.console import Console
from tfshards.prep.progress.lines import Meter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_that_is_erased_at_the_end():
    stream = Terminal()
    with Meter("verify", 3 << 20, Console(stream)) as bar:
        bar.add(1 << 20)
        bar.add(2 << 20)
    assert "verify:" in stream.getvalue()
    assert "/3.00M" in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_short_work_prints_nothing_without_a_terminal():
    stream = io.StringIO()
    with Meter("verify", 10, Console(stream)) as lines:
        lines.add(10)
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("done", "line"),
    [
        (1 << 20, r"verify: 1\.0 MiB of 4\.0 MiB, \S+ \S?i?B/s, \d+ s left\n"),
        (0, r"verify: 0 B of 4\.0 MiB, 0 B/s, time left unknown\n"),
    ],
)
def test_long_work_prints_lines_at_intervals(done, line, monkeypatch):
    monkeypatch.setattr(bars, "LINE_SECONDS", 0.0)
    stream = io.StringIO()
    with Meter("verify", 4 << 20, Console(stream)) as lines:
        lines.add(done)
    assert re.fullmatch(line, stream.getvalue())
