"""Dataflow, without its service: the size of the job graph; tests/packaging translates pipelines."""

from functools import partial
from math import ceil
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import Pipeline
from apache_beam.runners import create_runner

from tfshards.prep import ImageFolder
from tfshards.prep.engines import beam, pipeline
from tfshards.prep.engines.table import Work
from tfshards.prep.planning.options import DEFAULT_SHARD_SIZE
from tfshards.prep.progress.lines import WorkProgress
from tfshards.prep.writing.area import BuildArea, ShardId
from tfshards.prep.writing.shard import ShardTask, write_shard

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
    reader = ImageFolder(folder).stage(Path(), preview=True)
    area = BuildArea(folder.parent / "out", "0123abcd")
    area.open()
    progress = WorkProgress("photos", 1)
    task = ShardTask(
        area=area,
        reader=reader,
        schema=reader.listing().schema,
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


def test_the_options_of_the_command_are_accepted():
    beam.check_arguments(ARGUMENTS)
