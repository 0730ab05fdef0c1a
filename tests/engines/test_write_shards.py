"""``prep.WriteShards`` gives the same bytes on Prism, Flink and Spark as on Beam's local runner."""

import io

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from PIL import Image

from tfshards import prep
from tfshards.prep.writing.area import AREA_NAME

from .builds import contents

pytestmark = pytest.mark.engines

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
    elements = prep.Elements(images=["image"], label="label")
    options = prep.Options(splits={"train": 0.8, "val": 0.2}, stratify=True, max_rejected=0.2)
    return prep.WriteShards(out, elements, shards={"train": 4, "val": 2}, options=options)


def run(out, arguments: list[str], fail_once=None) -> dict[str, bytes]:
    with beam.Pipeline(options=PipelineOptions(arguments)) as pipeline:
        elements = pipeline | beam.Create(photos())
        if fail_once:
            elements |= beam.ParDo(FailOnce(fail_once))
        _ = elements | transform(out)
    assert not (out / AREA_NAME).exists()
    return dict(contents(out))


@pytest.fixture
def expected(tmp_path) -> dict[str, bytes]:
    return run(tmp_path / "local" / "pets", ["--runner=FnApiRunner"])


@pytest.mark.parametrize("engine", ["prism", "flink", "spark"], indirect=True)
def test_a_pipeline_on_an_engine_gives_the_same_bytes(engine, expected, tmp_path):
    assert run(tmp_path / "engine" / "pets", engine.options) == expected


@pytest.mark.parametrize("engine", ["flink"], indirect=True)
def test_a_pipeline_that_flink_starts_again_after_a_failure_gives_the_same_bytes(engine, expected, tmp_path):
    mark = tmp_path / "mark"
    assert run(tmp_path / "engine" / "pets", engine.loopback_options, mark) == expected
    assert mark.exists()
