"""``prep.WriteShards`` into buckets, which is all that its workers share; failures leave nothing for good."""

import random
from collections.abc import Sequence

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from tests.errors import raises
from tests.format_reader import Folder
from tests.pictures import image_file
from tests.prep.test_write_shards import planned, write_all
from tfshards import loader, prep
from tfshards.prep import build
from tfshards.schemas import BuildError, InputError, Manifest, read_manifest
from tfshards.schemas.storage import RemotePath, any_path

from .conftest import each_store, objects

pytestmark = pytest.mark.processes

Element = tuple[str, dict[str, object]]

SCENES = {"mask": "mask", "boxes": "list"}
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


def write_both(steps: object, assigned: list) -> tuple[str, object]:
    """Write the shards of the first layout, and of the one after rejects; return what is gathered of them."""
    write_all(steps, assigned, 1)
    group = assigned[0][0], ()
    write_all(steps, steps.balance(group), 1)
    return group


def finish(steps: object, assigned: list) -> Manifest:
    (manifest,) = steps.commit(write_both(steps, assigned))
    return manifest


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, bytes]:
    """Return the files that the pipeline writes to a disk."""
    out = tmp_path_factory.mktemp("local") / "out"
    run(transform(out))
    return {**Folder(out)}


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
    assert objects(str(out)) == expected
    assert prep.verify(str(out), deep=True)
    batches = [*loader.batches(str(out), "train", batch_size=37, shuffle=None)]
    given = dict(ELEMENTS)
    for key, mask in zip(batches[0]["key"], batches[0]["mask"], strict=True):
        assert mask == given[key.decode()]["mask"]


@each_store
def test_a_failed_pipeline_leaves_only_what_the_next_one_removes_or_uses(out, expected):
    with pytest.raises(Exception, match="not this one"):
        run(transform(out), fails="041.png")
    assert [path for path, _ in out.files_below() if path.name == "build.json"]
    steps, assigned = planned(ELEMENTS, transform(out))
    write_all(steps, assigned[:4], 1)
    # of the first pipeline nothing is left
    assert {path.parent for path, _ in out.files_below() if path.suffix == ".spill"} == {steps._staging}
    later, missing = planned(ELEMENTS, transform(out))
    assert [task[1] for _, task in missing if task] == [assigned[4][1][1]]
    assert {path.parent for path, _ in out.files_below() if path.suffix == ".spill"} == {later._staging}
    with pytest.raises((BuildError, InputError), match=rf"{steps._staging.name}.*other build"):
        [*steps.write(assigned[4])]
    with raises(BuildError, "another build of the dataset has begun", code="build-overtaken"):
        [*steps.balance(("0" * 8, ()))]
    finish(later, missing)
    assert objects(str(out)) == expected


def test_prune_removes_what_a_killed_pipeline_has_left(out):
    planned(ELEMENTS, transform(out))
    prep.prune(str(out))
    assert objects(str(out)) == {}


def test_a_bundle_that_ends_after_its_run_was_replaced_leaves_no_object(out):
    steps = transform(out)._steps()
    bundle = steps.bundle()
    bundle.describe(*ELEMENTS[0])
    planned(ELEMENTS, transform(out))
    with raises(
        BuildError, "another build of the dataset has begun", str(steps._staging), code="build-overtaken"
    ):
        bundle.close()
    assert not [*steps._staging.files_below()]


def test_a_pipeline_that_another_build_overtakes_does_not_replace_it(out):
    run(transform(out))
    first = read_manifest(out).build_id
    reseeded = transform(out, seed=1, overwrite=True)
    steps, assigned = planned(ELEMENTS, reseeded)
    group = write_both(steps, assigned)
    moved = {path: path.read_bytes() for path, _ in steps._staging.files_below()}
    other = build(prep.Examples([{"x": 1}]), str(out), overwrite=True)
    # as if that build had committed before it removed the staged values
    for path, data in moved.items():
        path.write_bytes(data)
    with raises(BuildError, "was committed in the meantime", str(other.folder), code="build-overtaken"):
        [*steps.commit(group)]
    assert read_manifest(out).build_id == other.build_id
    run(reseeded)
    assert read_manifest(out).build_id not in (first, other.build_id)
