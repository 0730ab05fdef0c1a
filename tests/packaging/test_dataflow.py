"""Beam's own Dataflow runner, with Google's libraries, translates pipelines and stages a job in a bucket."""

import json
import sys

import pytest

from tests.packaging.installations import ROOT, new_environment, run
from tests.storage import servers
from tfshards.schemas.storage import any_path

pytestmark = pytest.mark.nightly

IMAGE = "europe-docker.pkg.dev/project/images/tfshards-prep:0.1.0"
PROGRAM = f"""
import sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from tfshards import prep

prep.build(prep.Examples([{{"x": number}} for number in range(20)]), "gs://bucket/small")
arguments = ["--runner=DataflowRunner", "--project=project", "--region=europe-west1", "--no_auth",
    "--temp_location=gs://bucket/temp", "--sdk_container_image={IMAGE}", "--sdk_location=container"]
for name, option in (("dry", "--dry_run=true"), ("staged", "--template_location=gs://bucket/job.json")):
    pipeline = beam.Pipeline(options=PipelineOptions([*arguments, option]))
    examples = pipeline | prep.ReadShards("gs://bucket/small")
    written, rejected = examples | prep.WriteShards(f"gs://bucket/{{name}}", shards=2)
    pipeline.run()
print("translated")
"""


def test_the_dataflow_runner_translates_the_transforms_and_stages_their_job(tmp_path):
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = ("apache-beam[gcp]==2.77.0", "pip")
    programs = new_environment(tmp_path / "env", python, "prep,remote", ROOT, others)
    with servers.fake_gcs(tmp_path / "store") as server, pytest.MonkeyPatch.context() as patch:
        servers.create_bucket(server, "bucket")
        printed = run([programs / "python", "-c", PROGRAM], tmp_path, **server.environment)
        assert "\ntranslated\n" in printed
        for name, value in server.environment.items():
            patch.setenv(name, value)
        job = json.loads(any_path("gs://bucket/job.json").read_bytes())
        staged = [path.name for path, _ in any_path("gs://bucket/temp").files_below()]
    assert [
        each["containerImage"] for each in job["environment"]["workerPools"][0]["sdkHarnessContainerImages"]
    ] == [IMAGE]
    assert "pipeline.pb" in " ".join(staged)
