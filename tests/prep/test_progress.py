"""Progress: what is counted, lines where there is no bar, and where lines and libraries report."""

import io
import logging
import threading

import numpy as np
import pytest

from tfshards.prep import Arrays, build
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


def test_threads_count_together(shown):
    with reporting(quiet=True), Meter("photos", None) as meter:
        pass
    with reporting(), Meter("photos", 4 << 20) as meter:
        threads = [threading.Thread(target=lambda: [meter.add(1) for _ in range(5000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        meter.add((4 << 20) - 20_001)
        threading.Event().wait(0.05)
        meter.add(1)
    assert shown()[-1].startswith("photos: 4.00M of 4.00MB, ")


def test_a_caller_configures_logging(shown, caplog, tmp_path):
    build(Arrays({"x": np.arange(4)}), tmp_path / "data")
    assert shown() == []
    with caplog.at_level(logging.INFO, "tfshards"):
        build(Arrays({"x": np.arange(4)}), tmp_path / "other")
    assert any("to write, 4 examples" in message for message in caplog.messages)


def test_libraries_report_errors_and_everything_if_verbose(shown):
    library, own = logging.getLogger("library"), logging.getLogger("tfshards")
    for verbose in (False, True):
        with reporting(), reporting(verbose=verbose):
            library.info("a detail")
            library.error("an error\x1b\nof a trace")
            own.debug("tfshards 1.0\nand more")
    error = "library: ERROR: an error\\x1b"
    trace = "library: ERROR: of a trace"
    assert shown() == [error, "library: INFO: a detail", error, trace, "tfshards 1.0", "and more"]


@pytest.mark.parametrize("fault", [OSError(32, "Broken pipe"), ValueError("closed"), None])
def test_a_lost_standard_error_ends_nothing(fault, monkeypatch):
    class Lost(io.StringIO):
        def write(self, _: str) -> int:
            raise fault

    monkeypatch.setattr("sys.stderr", None if fault is None else Lost())
    with reporting(), Meter("photos", 4) as meter:
        report_line("a line")
        meter.add(4)
