"""The first pipeline of the README and of docs/engines.md runs: from a bucket, on Flink, into a batch."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.pictures import image_file
from tests.storage import servers
from tfshards.prep import verify
from tfshards.schemas import read_manifest
from tfshards.schemas.storage import any_path

from .engines import Engine

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[2]
PROGRAM = re.compile(r"^    import apache_beam as beam\n(?:    .*\n|\n)*", re.M)


@pytest.mark.parametrize("page", ["README.md", "engines.md"])
@pytest.mark.parametrize("engine", ["flink"], indirect=True)
def test_the_first_pipeline_of_a_page_runs_as_printed(page, engine: Engine, tmp_path, monkeypatch) -> None:
    program = PROGRAM.findall((ROOT / ("" if page == "README.md" else "docs") / page).read_text())[0]
    # only the address differs
    [endpoint] = (option for option in engine.options if option.startswith("--job_endpoint="))
    assert "--job_endpoint=localhost:8099" in program
    program = re.sub("^    ", "", program, flags=re.M).replace("--job_endpoint=localhost:8099", endpoint)
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
        images, labels = next(iter(names["train"]))
        assert images.shape == (32, 224, 224, 3)
        assert set(labels.numpy().tolist()) <= {0, 1}
        assert verify("s3://bucket/data", deep=True)
        assert read_manifest("s3://bucket/data").num_examples == 64
