"""A cluster builds from a bucket into a bucket: nothing that its workers need is on a shared disk."""

import pytest

from tests.storage import servers
from tfshards.prep import ImageFolder, Options, build, verify
from tfshards.schemas.storage import RemotePath, any_path

from .builds import BAD, NUM_SHARDS
from .engines import ENGINES

pytestmark = pytest.mark.engines


@pytest.fixture
def bucket(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """Run an object store, which the processes of the engine find in their environment."""
    with servers.moto(tmp_path / "logs") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        servers.create_bucket(server, "photos")
        yield any_path("s3://photos")


@pytest.fixture
def cluster(bucket: RemotePath, tmp_path):
    with ENGINES["flink-cluster"](tmp_path / "logs") as engine:
        yield engine


def test_flink_builds_from_a_bucket_into_a_bucket(cluster, bucket, source, expected) -> None:
    for path in source.rglob("*.*"):
        (bucket / "in" / path.relative_to(source).as_posix()).write_bytes(path.read_bytes())
    images = ImageFolder(f"{bucket}/in", exclude=(BAD,))
    options = Options(max_rejected=0.1, name="data")
    build(images, f"{bucket}/out", shards=NUM_SHARDS, options=options, beam_args=cluster.options, log=print)
    out = bucket / "out"
    found = {path.relative_to(out).as_posix(): path.read_bytes() for path, _ in out.walk()}
    # of the inputs of a bucket, ETags are recorded instead of times
    assert without_inputs(found) == without_inputs(expected[False])
    assert len(found) == len(expected[False])
    assert verify(str(out), deep=True)
    assert cluster.running_jobs() == []


def without_inputs(files) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not name.startswith("inputs-")}
