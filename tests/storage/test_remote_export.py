"""A dataset in an object store is exported to a local directory."""

from functools import partial

import pytest

from tests.prep.exported import write_everything
from tfshards.prep import export
from tfshards.schemas.storage import any_path

quietly = partial(export, log=lambda _: None)


@pytest.fixture
def both(tmp_path, bucket):
    """A dataset on a disk, and its copy in a bucket."""
    write_everything(tmp_path / "data")
    remote = any_path(f"{bucket.url}/data")
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file():
            (remote / path.relative_to(tmp_path / "data").as_posix()).write_bytes(path.read_bytes())
    return tmp_path / "data", remote


def test_an_export_of_a_dataset_in_a_bucket_is_that_of_a_local_one(both, tmp_path):
    held = []
    for number, dataset in enumerate(both):
        out = tmp_path / f"out{number}"
        quietly(str(dataset), out, to="webdataset")
        held.append({path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()})
    assert len(held[0]) == 6
    assert held[0] == held[1]
