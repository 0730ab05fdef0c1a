"""Builds and pipelines of a user give the same bytes on Flink, undisturbed and after a worker was killed.

``make engines`` runs these tests. Each starts its engine, as processes of this machine, and ends it.
tests/verbs derives datasets on Flink.
"""

import io
import os
import re
import runpy
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from PIL import Image

from tests.engines.builds import BUILD_SECONDS, building, contents, finished, wait_for_some
from tests.engines.processes import Flink
from tests.pictures import image_file
from tests.prep.calls import fail, note, work_of
from tests.programs import until
from tests.reported import logged
from tests.storage import servers
from tfshards import prep
from tfshards.prep import verify
from tfshards.prep.engines.work import find_run
from tfshards.schemas import BuildError, read_manifest
from tfshards.schemas.storage import any_path

pytestmark = pytest.mark.engines


@pytest.mark.flink
def test_an_undisturbed_build_gives_the_same_bytes(engine, source, expected, tmp_path):
    with building(source, tmp_path / "data", tmp_path, engine.options, with_rejects=True) as build:
        assert build.process.wait(BUILD_SECONDS) == 0, build.tail()
    assert contents(tmp_path / "data") == expected[True]


@pytest.mark.flink
def test_a_build_recovers_or_resumes_after_a_python_worker_was_killed(engine, source, expected, tmp_path):
    out = tmp_path / "data"
    with building(source, out, tmp_path, engine.options, with_rejects=False) as first:
        kept = wait_for_some(first, out)
        # one that dies while it connects lets Beam wait for minutes or for ever
        until(engine.pool.is_ready, "all Python workers are connected", 60)
        os.kill(engine.pool.workers()[0], signal.SIGKILL)
        status = first.process.wait(BUILD_SECONDS)
    if status != 0:
        print(first.tail())
        with building(source, out, tmp_path, engine.options, with_rejects=False) as second:
            assert second.process.wait(BUILD_SECONDS) == 0, second.tail()
    assert contents(out) == expected[False]
    # not written again
    assert kept.items() <= finished(out).items()


def test_the_error_of_a_worker_is_raised(engine, tmp_path):
    with pytest.raises(BuildError, match="changed after"):
        find_run(engine.options)(work_of(partial(fail, "input", note), tmp_path))


# Pipelines of a user give the same bytes, results and counters on Flink as anywhere


Element = tuple[str, dict[str, object]]


def photos() -> list[Element]:
    """Return 60 images, of which 5 are rejected."""
    found: list[Element] = []
    for number in range(60):
        file = io.BytesIO()
        pixels = np.random.default_rng(number).integers(0, 256, (30, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, "PNG")
        image = b"no image" if number % 12 == 0 else file.getvalue()
        found.append((f"{number:03}.png", {"image": image, "label": ("cat", "dog")[number % 2]}))
    return found


REJECTED = [f"{number:03}.png unreadable" for number in range(0, 60, 12)]


class FailOnce(beam.DoFn):
    """Passes elements on, and fails at one of them until a file exists."""

    def __init__(self, mark) -> None:
        self.mark = mark

    def process(self, element: Element):
        if element[0] == "030.png" and not self.mark.exists():
            self.mark.touch()
            raise ValueError("not now")
        yield element


def transform(out) -> prep.WriteShards:
    options = prep.Options(splits={"train": 0.8, "val": 0.2}, stratify=True, max_rejected=0.2)
    return prep.WriteShards(out, shards={"train": 4, "val": 2}, options=options)


class Run(NamedTuple):
    """What a pipeline has written, its results, and its counters with their steps."""

    files: dict[str, bytes]
    build_id: str
    rejected: list[str]
    metrics: dict[str, Any]


def run(out: Path, arguments: list[str], notes: Path, fail_once=None) -> Run:
    """Run the pipeline; its workers note the results in files of the folder ``notes``."""
    notes.mkdir()

    def note(name: str, text: str) -> None:
        (notes / name).write_text(text)

    pipeline = beam.Pipeline(options=PipelineOptions(arguments))
    elements = pipeline | beam.Create(photos())
    if fail_once:
        elements |= beam.ParDo(FailOnce(fail_once))
    result = elements | transform(out)
    _ = result.written | "Note" >> beam.Map(lambda manifest: note("written", manifest.build_id))
    _ = result.rejected | "NoteRejected" >> beam.Map(
        lambda one: note(f"rejected-{one[0]}", " ".join(one[:2]))
    )
    running = pipeline.run()
    running.wait_until_finish()
    found = {path.name: path.read_text() for path in notes.iterdir()}
    return Run(
        contents(out),
        found.pop("written"),
        sorted(found.values()),
        running.metrics().query(MetricsFilter().with_namespace("tfshards")),
    )


@pytest.fixture(scope="module")
def expected_run(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("local")
    return run(folder / "pets", ["--runner=FnApiRunner"], folder / "notes")


def check(found: Run, expected: Run) -> None:
    """Compare two runs, except for their metrics."""
    assert found.files == expected.files
    assert found.build_id == expected.build_id
    assert found.rejected == expected.rejected == REJECTED


def test_a_pipeline_on_an_engine_gives_the_same_bytes_and_counters(engine, expected_run, tmp_path):
    found = run(tmp_path / "pets", engine.options, tmp_path / "notes")
    check(found, expected_run)
    assert found.build_id == read_manifest(tmp_path / "pets").build_id
    for each in ("attempted", "committed"):
        assert counts(found, each) == counts(found, "result") == counts(expected_run, "committed")
    (times,) = found.metrics["distributions"]
    assert times.key.metric.name == "shard_milliseconds"
    assert times.result.count == 6
    assert 0 < times.result.min <= times.result.mean <= times.result.max


def counts(found: Run, kind: str) -> dict[str, int]:
    """Return the sum of each counter; ``kind`` is attempted, committed, or what Beam prefers of the two."""
    sums: Counter[str] = Counter()
    for each in found.metrics["counters"]:
        sums[each.key.metric.name] += getattr(each, kind)
    assert sums["accepted"] == 55
    assert sums["rejected"] == sums["rejected_unreadable"] == 5
    assert sums["bytes"] == sum(
        len(data) for name, data in found.files.items() if ".tfrecord-" in name and "index" not in name
    )
    return dict(sums)


def test_a_pipeline_that_flink_restarts_after_a_failure_gives_the_same_bytes(engine, expected_run, tmp_path):
    mark = tmp_path / "mark"
    check(run(tmp_path / "pets", engine.loopback_options, tmp_path / "notes", mark), expected_run)
    assert mark.exists()


# ``ReadShards | model | WriteShards`` gives the same bytes on Flink and the local runner


EXAMPLE = Path(__file__).parents[2] / "examples" / "embed_shards.py"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    """A dataset of 120 images, of which 10 have one color."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(120):
        pixels = np.random.default_rng(number).integers(0, 256, (30, 30, 3), dtype=np.uint8)
        path = folder / "photos" / ("cat", "dog")[number % 2] / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image_file(pixels * bool(number % 12)))
    logged(prep.build, print)(prep.ImageFolder(folder / "photos"), folder / "data", shards=5)
    return folder / "data"


@pytest.fixture(scope="module")
def embeddings(dataset, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("local") / "embeddings"
    runpy.run_path(str(EXAMPLE))["main"](str(dataset), str(out))
    assert prep.info(out).num_examples == 110
    return contents(out)


def test_a_model_over_a_dataset_gives_the_same_bytes(engine, dataset, embeddings, tmp_path):
    out = tmp_path / "engine" / "embeddings"
    runpy.run_path(str(EXAMPLE))["main"](str(dataset), str(out), *engine.options)
    assert contents(out) == embeddings


def test_each_example_is_read_once_although_a_worker_is_killed_meanwhile(engine, dataset, tmp_path):
    mark, out = tmp_path / "mark", tmp_path / "engine" / "again"

    # workers need not import this module
    def kill_once(element: Element) -> Element:
        if element[0] == "cat/030.png" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return element

    with beam.Pipeline(options=PipelineOptions(engine.options)) as pipeline:
        read = pipeline | prep.ReadShards(dataset) | beam.Map(kill_once)
        _ = read | prep.WriteShards(out, class_names=["cat", "dog"], shards=5)
    assert mark.exists()
    digests = [[shard.digest for shard in prep.info(each).shards] for each in (dataset, out)]
    assert digests[0] == digests[1]


# The pipeline of the README runs: from a bucket, on Flink, into shards


ROOT = Path(__file__).parents[2]


def program_of_readme() -> str:
    """Return the pipeline of the README with the options and paths that it gives for Flink."""
    text = (ROOT / "README.md").read_text()
    [program] = re.findall(r"^```python\n(import apache_beam as beam\n.*?)^```$", text, re.M | re.S)
    [options] = re.findall(r'`(\["--runner=PortableRunner".*?\])`', text)
    [photos] = re.findall(r"`(s3://\S+)`", text)
    changes = {
        '["--runner=FnApiRunner"]': options,
        '"photos/*/*.jpg"': f'"{photos}"',
        '"data/beam"': '"s3://bucket/data"',
    }
    for local, remote in changes.items():
        assert program.count(local) == 1
        program = program.replace(local, remote)
    return program


def test_the_pipeline_of_the_readme_runs_as_printed(engine: Flink, tmp_path, monkeypatch) -> None:
    program = program_of_readme()
    # only the address differs
    [endpoint] = (option for option in engine.options if option.startswith("--job_endpoint="))
    assert "--job_endpoint=localhost:8099" in program
    program = program.replace("--job_endpoint=localhost:8099", endpoint)
    with servers.moto(tmp_path / "store") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        servers.create_bucket(server, "bucket")
        photos = any_path("s3://bucket/photos")
        for number in range(64):
            name = f"{('cat', 'dog')[number % 2]}/{number}.jpg"
            (photos / name).write_bytes(image_file(np.full((12, 12, 3), number, np.uint8), "JPEG"))
        names: dict[str, object] = {}
        exec(program, names)
        assert verify("s3://bucket/data", deep=True)
        assert read_manifest("s3://bucket/data").num_examples == 64
