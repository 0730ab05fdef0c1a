"""``ReadShards | model | WriteShards`` gives the same bytes on Flink and the local runner."""

import os
import runpy
import signal
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from tests.pictures import image_file
from tests.reported import logged
from tfshards import prep
from tfshards.prep.engines.read_shards import Element

from .builds import contents

pytestmark = pytest.mark.engines

EXAMPLE = Path(__file__).parents[2] / "examples" / "embed_shards.py"


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
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
def expected(photos, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("local") / "embeddings"
    runpy.run_path(str(EXAMPLE))["main"](str(photos), str(out))
    assert prep.info(out).num_examples == 110
    return contents(out)


def test_a_model_over_a_dataset_gives_the_same_bytes(engine, photos, expected, tmp_path):
    out = tmp_path / "engine" / "embeddings"
    runpy.run_path(str(EXAMPLE))["main"](str(photos), str(out), *engine.options)
    assert contents(out) == expected


def test_each_example_is_read_once_although_a_worker_is_killed_meanwhile(engine, photos, tmp_path):
    mark, out = tmp_path / "mark", tmp_path / "engine" / "again"

    # workers need not import this module
    def kill_once(element: Element) -> Element:
        if element[0] == "cat/030.png" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return element

    with beam.Pipeline(options=PipelineOptions(engine.options)) as pipeline:
        read = pipeline | prep.ReadShards(photos) | beam.Map(kill_once)
        _ = read | prep.WriteShards(out, class_names=["cat", "dog"], shards=5)
    assert mark.exists()
    digests = [[shard.digest for shard in prep.info(each).shards] for each in (photos, out)]
    assert digests[0] == digests[1]
