"""What workers must have before their first item, and what is reported if they do not."""

from dataclasses import replace

import pytest

from tfshards.prep.engines.beam_log import reason
from tfshards.prep.engines.worker import Requirements
from tfshards.schemas import BuildError


@pytest.fixture
def needed(tmp_path) -> Requirements:
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    (tmp_path / "area").mkdir()
    return Requirements.of(tmp_path / "area", "abc", [tmp_path / "photos"])


def lose_area(needed: Requirements) -> None:
    (needed.folder / "token").unlink()


def other_area(needed: Requirements) -> None:
    (needed.folder / "token").write_text("another build")


def lose_source(needed: Requirements) -> None:
    ((source, _),) = needed.sources
    (source / "cats").rmdir()
    source.rmdir()


def other_source(needed: Requirements) -> None:
    ((source, _),) = needed.sources
    (source / "cats").rename(source / "dogs")


FAULTS = {
    "no build area": (lose_area, "cannot read the build area .*area "),
    "another folder": (other_area, "sees another folder at .*area;"),
    "the source is missing": (lose_source, "cannot read the source .*photos;"),
    "another source": (other_source, "sees another folder at .*photos;"),
}


@pytest.mark.parametrize(("damage", "message"), FAULTS.values(), ids=FAULTS)
def test_a_worker_that_sees_other_files_is_refused(damage, message, needed):
    needed.check()
    damage(needed)
    with pytest.raises(BuildError, match=f"^a worker on .* {message}"):
        needed.check()


def test_a_worker_with_another_version_is_refused(needed):
    for name in ("Python", "tfshards", "pillow"):
        with pytest.raises(BuildError, match=rf"has {name} \d.*, but the command runs with 0\.0"):
            replace(needed, versions={**needed.versions, name: "0.0"}).check()
    # one may have a package that the command lacks
    replace(needed, versions={name: needed.versions[name] for name in ("Python", "tfshards")}).check()


def test_relative_paths_need_the_same_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "area").mkdir()
    needed = Requirements.of((tmp_path / "area").relative_to(tmp_path), "abc", [])
    needed.check()
    monkeypatch.chdir("/")
    with pytest.raises(BuildError, match="absolute paths"):
        needed.check()


# as Prism, Flink and the local runner pass the errors of workers on, and what a user has to learn of them
REASONS = {
    "a worker on a has pillow 1": RuntimeError(
        "Pipeline job-1 failed in state FAILED: bundle x failed:Traceback (most recent call last):\n"
        "  File worker.py\n"
        "tfshards.schemas.errors.BuildError: a worker on a has pillow 1 [while running 'Call']\n\n"
    ),
    "a.png: changed": RuntimeError(
        r"java.lang.RuntimeException: ...\ntfshards.schemas.errors.InputError: a.png: changed\n\tat"
    ),
    "a worker cannot import tfshards; ": RuntimeError(
        "ModuleNotFoundError: No module named 'tfshards'\n\nmore"
    ),
    "a worker cannot import PIL; ": RuntimeError(
        "ModuleNotFoundError: images need PIL: pip install 'tfshards[prep]'"
    ),
    "a worker has another version of tfshards ": RuntimeError(
        "x\nAttributeError: Can't get attribute '_Call' on <module 'tfshards'>\ny"
    ),
    "the job service cannot be reached any more: Stream removed (Socket closed)": RuntimeError(
        "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n"
        '\tdetails = "Stream removed (Socket closed)"\n\tdebug_error_string = "UNAVAILABLE"\n>'
    ),
    "Apache Beam ended the pipeline: last": ValueError("first\nlast"),
    "Apache Beam ended the pipeline: ValueError": ValueError(),
}


def test_the_reason_of_a_failure_is_found_in_what_a_runner_reports():
    for line, failure in REASONS.items():
        assert reason(failure).startswith(line)
