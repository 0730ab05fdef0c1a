"""``prep.WriteShards`` into buckets: its workers share nothing else, and what fails leaves nothing for good."""

import random
from collections.abc import Sequence

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from tests.pictures import image_file
from tfshards import loader, prep
from tfshards.prep.building.write_shards import WriteSteps
from tfshards.schemas import Manifest
from tfshards.schemas.storage import AnyPath, RemotePath, any_path

from .conftest import each_store

Element = tuple[str, dict[str, object]]

SCENES = prep.Elements(images=["image"], masks=["mask"], lists=["boxes"], label="label")
OPTIONS = prep.Options(max_rejected=0.2, name="scenes")


def scene(number: int) -> Element:
    random = np.random.default_rng(number)
    image = image_file(random.integers(0, 256, (12, 9 + number % 4, 3), dtype=np.uint8))
    mask = image_file(random.integers(0, 5, (12, 9 + number % 4), dtype=np.uint8))
    features = {
        "image": image if number % 10 else b"no image",
        "mask": mask,
        "boxes": random.random((number % 3, 4), dtype=np.float32),
        "label": ("street", "forest")[number % 2],
    }
    return f"{number:03}.png", features


ELEMENTS = [scene(number) for number in range(1, 42)]
REJECTED = ["010.png", "020.png", "030.png", "040.png"]


def transform(out: object, **arguments: object) -> prep.WriteShards:
    return prep.WriteShards(str(out), SCENES, shards=4, options=OPTIONS, **arguments)


def run(
    transform: prep.WriteShards, elements: Sequence[Element] = ELEMENTS, *arguments: str, fails: str = ""
) -> None:
    """Run a pipeline on Beam's local runner; it fails at the element with the key ``fails``."""

    def checked(element: Element) -> Element:
        assert element[0] != fails, "not this one"
        return element

    with beam.Pipeline(FnApiRunner(), PipelineOptions(list(arguments))) as pipeline:
        result = pipeline | beam.Create(elements) | beam.Map(checked) | transform
        counts = result.written | beam.Map(lambda manifest: manifest.num_examples)
        assert_that(counts, equal_to([37]), "one manifest")
        assert_that(result.rejected | beam.Map(lambda one: one[0]), equal_to(REJECTED), "rejected")


def planned(transform: prep.WriteShards) -> tuple[WriteSteps, str, list]:
    """Take the first two steps; return all steps, the plan id and the tasks."""
    steps = transform._steps()
    bundle = steps.bundle()
    descriptions = [bundle.describe(element) for element in ELEMENTS]
    bundle.close()
    return steps, *steps.plan(descriptions)


def finish(steps: WriteSteps, plan_id: str, tasks: list) -> Manifest:
    for task in tasks:
        steps.write(task)
    for task in steps.balance(plan_id):
        steps.write(task)
    return steps.commit(plan_id)


def contents(out: AnyPath) -> dict[str, bytes]:
    if isinstance(out, RemotePath):
        return {path.relative_to(out).as_posix(): path.read_bytes() for path, _ in out.walk()}
    files = [path for path in out.rglob("*") if path.is_file()]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, bytes]:
    """Return the files that the pipeline writes to a disk."""
    out = tmp_path_factory.mktemp("local") / "out"
    run(transform(out))
    return contents(out)


@pytest.fixture
def out(bucket) -> RemotePath:
    found = any_path(f"{bucket.url}/out")
    assert isinstance(found, RemotePath)
    return found


PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")


@each_store
def test_processes_that_share_only_a_bucket_write_the_bytes_of_a_disk(out, expected):
    shuffled = random.Random(1).sample(ELEMENTS, len(ELEMENTS))
    run(transform(out), shuffled, *PROCESSES)
    assert contents(out) == expected
    assert prep.verify(str(out), deep=True)
    batches = [*loader.batches(str(out), "train", batch_size=37, shuffle=None)]
    given = dict(ELEMENTS)
    for key, mask in zip(batches[0]["key"], batches[0]["mask"], strict=True):
        assert mask == given[key.decode()]["mask"]
