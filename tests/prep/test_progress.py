"""Progress: what is counted, lines where there is no bar, and where lines and libraries report."""

import io
import threading

import pytest

from tfshards.prep.progress import lines
from tfshards.prep.progress.console import reporting
from tfshards.prep.progress.lines import Meter, report_line


@pytest.fixture
def shown(monkeypatch, capsys):
    """Return the lines on standard error; those of progress are frequent."""
    monkeypatch.setattr(lines, "LINE_SECONDS", 0.01)
    return lambda: capsys.readouterr().err.splitlines()


def test_where_there_is_no_bar_lines_say_how_much_is_done(shown):
    with reporting(), Meter("photos", 400, "examples") as meter:
        for done in (100, 300, 200):
            threading.Event().wait(0.05)
            # of a task that a runner repeats, less is done
            meter.reach(done)
    found = shown()
    assert [*dict.fromkeys(line.partition(" examples, ")[0] for line in found)] == [
        "photos: 100 of 400",
        "photos: 300 of 400",
    ]
    assert all(line.endswith(" left") for line in found)


@pytest.mark.parametrize("fault", [OSError(32, "Broken pipe"), ValueError("closed"), None])
def test_a_lost_standard_error_ends_nothing(fault, monkeypatch):
    class Lost(io.StringIO):
        def write(self, _: str) -> int:
            raise fault

    monkeypatch.setattr("sys.stderr", None if fault is None else Lost())
    with reporting(), Meter("photos", 4) as meter:
        report_line("a line")
        meter.add(4)
