"""Dataflow, as far as Beam allows without its service: the size of the job graph, and its translation."""

import sys
from functools import partial
from math import ceil
from types import ModuleType, SimpleNamespace

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import Pipeline
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners import create_runner

from tfshards.prep import ImageFolder
from tfshards.prep.engines import beam, pipeline
from tfshards.prep.engines.table import Work
from tfshards.prep.planning.options import DEFAULT_SHARD_SIZE
from tfshards.prep.progress.lines import WorkProgress
from tfshards.prep.writing.area import BuildArea, ShardId
from tfshards.prep.writing.shard import ShardTask, write_shard

DOCKER = common_urns.environments.DOCKER.urn
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


def pipeline_of(num_shards: int, folder, *arguments: str) -> Pipeline:
    """Return the pipeline of a build with this number of shards, with a class for each thousandth one."""
    source = ImageFolder(folder)
    area = BuildArea(folder.parent / "out", "0123abcd")
    area.open()
    progress = WorkProgress("photos", 1)
    task = ShardTask(
        area=area,
        reader=source,
        schema=source.listing().schema,
        phase="first",
        name="photos",
        num_shards={"train": num_shards},
        reporter=progress.reporter,
        finds_duplicates=False,
        compression="none",
    )
    items = [ShardId("train", index) for index in range(num_shards)]
    work = Work(partial(write_shard, task), items, progress, stop=area.stop, area=area, sources=(folder,))
    return pipeline.pipeline_of(work, create_runner("DataflowRunner"), PipelineOptions(list(arguments)))


@pytest.fixture
def thousand_classes(image_folder):
    return image_folder({f"class {number:04d}/1.png": number for number in range(1000)})


def test_the_job_graph_of_ten_million_inputs_of_1_mb_is_smaller_than_1_mb(thousand_classes):
    num_shards = ceil(10_000_000 * 1_000_000 / DEFAULT_SHARD_SIZE)
    graph = pipeline_of(num_shards, thousand_classes, *ARGUMENTS).to_runner_api()
    assert len(graph.SerializeToString()) < MAX_BYTES


@pytest.fixture
def dataflow_client(monkeypatch) -> SimpleNamespace:
    """Replace the one module that needs Google's libraries: it turns the pipeline into a request."""
    taken = SimpleNamespace(graph=None)

    def job(options: PipelineOptions, graph: beam_runner_api_pb2.Pipeline) -> SimpleNamespace:
        taken.graph = graph
        return SimpleNamespace(options=options)

    name = "apache_beam.runners.dataflow.internal.apiclient"
    client = ModuleType(name)
    client.Job = job
    client.get_container_image_from_options = lambda options: IMAGE
    monkeypatch.setitem(sys.modules, name, client)
    monkeypatch.setattr("apache_beam.runners.dataflow.internal.apiclient", client, raising=False)
    return taken


def test_the_pipeline_translates_for_dataflow(thousand_classes, dataflow_client):
    made = pipeline_of(100, thousand_classes, *ARGUMENTS, "--dry_run=true")
    assert type(made.runner) is type(create_runner("DataflowRunner"))
    made.run()
    graph = dataflow_client.graph
    (environment,) = {each.SerializeToString() for each in graph.components.environments.values()}
    found = beam_runner_api_pb2.Environment.FromString(environment)
    assert found.urn == DOCKER
    assert beam_runner_api_pb2.DockerPayload.FromString(found.payload).container_image == IMAGE
    names = {each.unique_name.split("/")[0] for each in graph.components.transforms.values()}
    assert {"Impulse", "List", "Spread", "Call"} <= names
    # nothing in the graph needs what Dataflow lacks: it is bounded, and without side inputs and state
    for transform in graph.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            assert not payload.side_inputs
            assert not payload.state_specs
            assert not payload.timer_family_specs
    assert {each.is_bounded for each in graph.components.pcollections.values()} == {
        beam_runner_api_pb2.IsBounded.BOUNDED
    }


def test_the_options_of_the_command_are_accepted():
    beam.check_arguments(ARGUMENTS)
