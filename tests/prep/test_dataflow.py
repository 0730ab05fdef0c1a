"""Dataflow, without its service: the size of the job graph; tests/packaging translates pipelines."""

from math import ceil

from apache_beam.options.pipeline_options import PipelineOptions

from tfshards.prep.engines.beam import pipeline_of
from tfshards.prep.engines.worker import needed_paths
from tfshards.prep.planning.options import DEFAULT_SHARD_SIZE
from tfshards.prep.writing.build_folder import ShardId

from .calls import note, work_of

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
