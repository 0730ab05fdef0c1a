"""What workers must have before their first item, how their errors come back, and the size of their job."""

import json
from math import ceil
from pathlib import Path

import pytest
from apache_beam.coders import CloudpickleCoder
from apache_beam.options.pipeline_options import PipelineOptions

from tests.prep.calls import note, work_of
from tfshards.prep.engines.beam import pipeline_of
from tfshards.prep.engines.worker import (
    check_worker,
    marked_error,
    marking_errors,
    needed_paths,
    own_versions,
)
from tfshards.prep.planning.options import DEFAULT_SHARD_SIZE
from tfshards.prep.records.frames import RecordError
from tfshards.prep.writing.build_folder import ShardId
from tfshards.schemas import BuildError, FormatError, InputError
from tfshards.schemas.errors import Problem


@pytest.fixture
def paths(tmp_path):
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    (tmp_path / "build").mkdir()
    with needed_paths(work_of(note, tmp_path / "build", [tmp_path / "photos"])) as paths:
        yield paths
    assert not list((tmp_path / "build").iterdir())


def lose_build(folder: Path) -> None:
    (folder / "build").rename(folder / "moved")
    (folder / "build").mkdir()


def lose_source(folder: Path) -> None:
    (folder / "photos" / "cats").rmdir()
    (folder / "photos").rmdir()


FAULTS = {
    "another folder of the build": (lose_build, "build"),
    "the source is missing": (lose_source, "photos"),
}


@pytest.mark.parametrize(("damage", "name"), FAULTS.values(), ids=FAULTS)
def test_a_worker_that_sees_other_files_is_refused(damage, name, paths, tmp_path):
    check_worker({}, paths)
    damage(tmp_path)
    with pytest.raises(BuildError, match="a worker on") as failed:
        check_worker({}, paths)
    assert str(tmp_path / name) in str(failed.value)


def test_a_worker_with_another_version_is_refused():
    own = own_versions()
    for name in ("Python", "tfshards", "pillow"):
        with pytest.raises(BuildError, match="a worker on") as failed:
            check_worker({**own, name: "0.0"}, [])
        assert f"{name} {own[name]}" in str(failed.value)
        assert f"{name} 0.0" in str(failed.value)
    # one may have a package that the command lacks
    check_worker({name: own[name] for name in ("Python", "tfshards")}, [])


def test_relative_paths_need_the_same_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("build").mkdir()
    with needed_paths(work_of(note, Path("build"))) as paths:
        check_worker({}, paths)
        monkeypatch.chdir("/")
        with pytest.raises(BuildError, match="a worker on"):
            check_worker({}, paths)
        monkeypatch.chdir(tmp_path)


def test_what_a_worker_calls_is_pickled_by_the_name_of_its_module():
    # by its content, a worker of another version could not even unpickle it
    coder = CloudpickleCoder()
    assert coder.decode(coder.encode(check_worker)) is check_worker


ERRORS = [
    InputError('"a"\n: changed after the build listed it', "a line", code="file-changed"),
    RecordError(Path("a"), 1, 12, "its checksum differs"),
    FormatError("dataset.json", [Problem("splits", "are missing")]),
    FileNotFoundError(2, "No such file or directory", "a"),
]
# how engines quote what a worker raises
QUOTES = {
    "as it is": "Traceback ...\nRuntimeError: {} [while running 'Call']\n\n",
    "with another error": "RuntimeError: {0}\nDuring handling of the above exception ...\nRuntimeError: {0}",
    "in JSON": json.dumps("RuntimeError: {}\nat"),
    "in Java": r"java.lang.RuntimeException: ...\nRuntimeError: {}\n\tat",
}


@pytest.mark.parametrize(
    ("error", "quoted"),
    [
        *((error, QUOTES["as it is"]) for error in ERRORS[1:]),
        *((ERRORS[0], quoted) for quoted in QUOTES.values()),
    ],
)
def test_the_error_of_a_worker_is_found_in_what_an_engine_reports(error, quoted):
    with pytest.raises(RuntimeError) as raised, marking_errors():
        raise error
    found = marked_error(RuntimeError(quoted.replace("{0}", "{}").replace("{}", str(raised.value))))
    assert type(found) is (type(error) if isinstance(error, OSError) else BuildError)
    assert (str(found), getattr(found, "code", "")) == (str(error), getattr(error, "code", ""))


def test_no_error_is_found_in_another_text():
    # the name of an input may be anything
    for text in ("", "[tfshards:e30=]", "[tfshards:bnVsbA==]", "[tfshards:x]"):
        assert marked_error(RuntimeError(f"java.lang.RuntimeException: {text}")) is None


# Dataflow, without its service: the size of the job graph; tests/packaging translates pipelines


IMAGE = "europe-docker.pkg.dev/project/images/tfshards-prep:0.1.0"


ARGUMENTS = [
    "--runner=DataflowRunner",
    "--project=project",
    "--region=europe-west1",
    "--temp_location=gs://bucket/temp",
    f"--sdk_container_image={IMAGE}",
    "--sdk_location=container",
]


MAX_BYTES = 1_000_000


def test_the_job_graph_of_ten_million_inputs_of_1_mb_is_smaller_than_1_mb(tmp_path):
    num_shards = ceil(10_000_000 * 1_000_000 / DEFAULT_SHARD_SIZE)
    work = work_of(note, tmp_path, items=[ShardId("train", index) for index in range(num_shards)])
    with needed_paths(work) as paths:
        graph = pipeline_of(work, paths, PipelineOptions(ARGUMENTS)).to_runner_api()
    assert num_shards > 70_000
    assert len(graph.SerializeToString()) < MAX_BYTES
