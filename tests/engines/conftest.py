"""Fixtures for Flink: the source, what a build of it must give, and a Flink for each test."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.engines.processes import Flink, flink
from tests.reported import logged
from tfshards.prep import ImageFolder, Options, build

from .builds import BAD, NUM_SHARDS, contents, write_images
from .setup_engines import flink_job_server_jars


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of images."""
    return write_images(tmp_path_factory.mktemp("source") / "photos")


@pytest.fixture(scope="session")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[bool, Mapping[str, bytes]]:
    """Return the files of the dataset that every engine must write, with and without rejects."""
    folder = tmp_path_factory.mktemp("expected")
    found = {}
    for with_rejects in (True, False):
        out = folder / str(with_rejects) / "data"
        images = ImageFolder(source, exclude=() if with_rejects else (BAD,))
        options = Options(max_rejected=0.1)
        logged(build, print)(images, out, shards=NUM_SHARDS, options=options)
        found[with_rejects] = contents(out)
    return found


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Flink]:
    """Run Flink; outside of make engines, skip the test if it was not fetched."""
    if "flink" in request.keywords and not (shutil.which("java") and flink_job_server_jars().exists()):
        pytest.skip("Flink needs Java, and jars that make engines fetches")
    with flink(tmp_path / "logs") as engine:
        yield engine
