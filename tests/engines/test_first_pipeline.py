"""The pipeline of the README runs: from a bucket, on Flink, into shards."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.pictures import image_file
from tests.storage import servers
from tfshards.prep import verify
from tfshards.schemas import read_manifest
from tfshards.schemas.storage import any_path

from .flink import Flink

pytestmark = pytest.mark.engines

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
