"""Messages about errors of the operating system, in the main process and in workers."""

import numpy as np
import pytest

from tfshards.prep import Arrays, build, verify
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import BuildError
from tfshards.schemas.files import system_fault

GOES_ON = "once that is fixed, run the same command to resume"
FULL = OSError(28, "No space left on device")


def build_numbers(folder):
    return build(Arrays({"x": np.arange(40)}), folder / "data", shards=2, log=lambda _: None)


FAULTS = {
    "a file that has no name": (FULL, f"out: No space left on device; {GOES_ON}"),
    "a file that was to be renamed": (
        OSError(13, "Permission denied", "out/a", None, "out/b"),
        f"out/b: Permission denied; {GOES_ON}",
    ),
    "an error without a number": (OSError("odd"), f"out: odd; {GOES_ON}"),
}


@pytest.mark.parametrize(("error", "line"), FAULTS.values(), ids=FAULTS)
def test_an_error_of_the_system_names_the_path_and_the_remedy(error, line):
    assert system_fault("out", error) == line


@pytest.mark.parametrize("step", ["create", "commit"])
def test_an_error_in_the_main_process_is_reported_and_the_build_can_be_resumed(step, tmp_path, monkeypatch):
    def strike(*_: object) -> None:
        raise FULL

    with monkeypatch.context() as patched:
        patched.setattr(f"tfshards.prep.building.build.{step}", strike)
        with pytest.raises(BuildError, match=f"data: No space left on device; {GOES_ON}$"):
            build_numbers(tmp_path)
    assert not (tmp_path / "data" / "dataset.json").exists()
    build_numbers(tmp_path)
    assert verify(tmp_path / "data", deep=True)


STRIKES = {
    "the disk is full": (FULL, rf"data: No space left on device; {GOES_ON}"),
    "an error that nobody foresaw": (
        ValueError("odd"),
        r"data-train-\w+\.tfrecord-\d+-of-00002: ValueError: odd",
    ),
}
# without space for the reason in the build area, only the text of the error is known
WITHOUT_REASON = {
    "the disk is full": (FULL, rf"data: No space left on device; {GOES_ON}"),
    "an error that nobody foresaw": (ValueError("odd"), r"^odd$"),
}


@pytest.mark.parametrize("has_room", [True, False])
@pytest.mark.parametrize("what", STRIKES)
def test_an_error_in_a_worker_is_reported_and_the_build_can_be_resumed(what, has_room, tmp_path, monkeypatch):
    error, message = (STRIKES if has_room else WITHOUT_REASON)[what]

    def strike(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("tfshards.prep.writing.area.BuildArea.write_all", strike)
        if not has_room:
            patched.setattr(BuildArea, "stop", lambda *_: None)
        with pytest.raises(BuildError, match=message):
            build_numbers(tmp_path)
    build_numbers(tmp_path)
    assert verify(tmp_path / "data", deep=True)
