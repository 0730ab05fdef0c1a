"""What reads a dataset reads it in an object store as on a disk; ``adopt`` writes its manifest there."""

import numpy as np
import pytest

from tests.durability.inputs import image, write
from tests.errors import raises
from tfshards import prep
from tfshards.prep import Arrays, ImageFolder, Options, build
from tfshards.prep.adoption import adopt as adopted_files
from tfshards.prep.cli.main import main
from tfshards.schemas import BuildError, InputError, read_manifest
from tfshards.schemas.index import index_path, labels_path
from tfshards.schemas.storage import RemotePath, any_path


def upload(folder, target: RemotePath) -> RemotePath:
    for path in folder.rglob("*"):
        if path.is_file():
            (target / path.relative_to(folder).as_posix()).write_bytes(path.read_bytes())
    return target


@pytest.fixture(params=["none", "gzip"])
def both(request, tmp_path, bucket):
    """A dataset of 24 images on a disk, and its copy in a bucket."""
    for number in range(24):
        write(tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number:02}.png", image(number))
    write(tmp_path / "photos" / "cat" / "bad.png", b"no image")
    local = tmp_path / "data"
    options = Options(max_rejected="50%", compression=request.param, splits={"train": "75%", "val": "25%"})
    build(ImageFolder(tmp_path / "photos"), local, shards=2, options=options, log=lambda _: None)
    return local, upload(local, any_path(f"{bucket.url}/data"))


def lines(both, capsys, *command: str) -> list[list[str]]:
    """Return what a command prints of each of two datasets, with ``DATASET`` for its path."""
    found = []
    for dataset in both:
        status = main([part.replace("DATASET", str(dataset)) for part in command])
        out = capsys.readouterr().out.replace(str(dataset), "DATASET")
        found.append([str(status), *out.splitlines()])
    return found


@pytest.mark.parametrize(
    "command",
    [
        ["info", "DATASET"],
        ["info", "DATASET", "--json"],
        ["verify", "DATASET", "--deep", "--decode"],
        ["show", "DATASET", "val:3"],
        ["show", "DATASET", "cat/04.png"],
        ["audit", "DATASET", "--distance", "none"],
    ],
    ids=" ".join,
)
def test_a_command_prints_of_a_dataset_in_a_bucket_what_it_prints_of_a_local_one(both, capsys, command):
    local, remote = lines(both, capsys, *command)
    assert local[0] == "0" or command[0] == "audit"
    assert len(local) > 1
    assert remote == local


def test_a_page_of_a_dataset_in_a_bucket_is_that_of_a_local_one(both, tmp_path):
    pages = [prep.report(dataset, tmp_path / f"{place}.html") for place, dataset in enumerate(both)]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert b"bad.png" in pages[1].read_bytes()


def damage(root, name: str, at: int) -> None:
    data = bytearray((root / name).read_bytes())
    data[at] ^= 1
    (root / name).write_bytes(bytes(data))


@pytest.mark.parametrize("what", ["shard", "index", "labels", "missing", "short", "rejects"])
def test_damage_in_a_bucket_is_reported_as_on_a_disk(both, capsys, what):
    manifest = read_manifest(both[0])
    shard = manifest.shards[1]
    for root in both:
        if what == "shard":
            damage(root, shard.path, shard.num_bytes // 2)
        elif what == "missing":
            (root / shard.path).unlink()
        elif what == "short":
            (root / shard.path).write_bytes((root / shard.path).read_bytes()[:-20])
        elif what == "rejects":
            damage(root, next(path.name for path in root.glob("rejected-*.jsonl")), 3)
        else:
            path = {"index": index_path, "labels": labels_path}[what](shard.path)
            damage(root, path, 0)
    local, remote = lines(both, capsys, "verify", "DATASET", "--deep")
    assert local[0] == "1"
    missing = "No such file or directory", "there is no such object"
    assert remote == [line.replace(*missing) for line in local]


def test_a_bucket_without_a_dataset_is_explained(bucket, capsys):
    for url, message in (
        (f"{bucket.url}/nothing", "does not exist"),
        ("s3://no-such-bucket/data", "there is no such bucket"),
    ):
        with pytest.raises(InputError, match=rf"^{url}.* {message}$"):
            prep.verify(url)
    any_path(f"{bucket.url}/photos/x.txt").write_bytes(b"1")
    with raises(InputError, "dataset-missing", manifest="dataset.json"):
        prep.verify(f"{bucket.url}/photos")
    with raises(InputError, "dataset-no-folder", manifest="dataset.json"):
        prep.verify(f"{bucket.url}/photos/x.txt")


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_files_in_a_bucket_are_adopted_as_on_a_disk(tmp_path, bucket, compression, monkeypatch):
    numbers = {"x": np.arange(40), "label": np.arange(40) % 3}
    options = Options(compression=compression)
    build(Arrays(numbers), tmp_path / "built", shards=3, options=options, log=lambda _: None)
    folder = tmp_path / "files"
    folder.mkdir()
    for number, shard in enumerate(read_manifest(tmp_path / "built").shards):
        (tmp_path / "built" / shard.path).rename(folder / f"train-{number:05}-of-00003.tfrecord")
    (folder / "notes.txt").write_text("not records")
    (folder / ".hidden").write_text("skipped")
    remote = upload(folder, any_path(f"{bucket.url}/files"))
    log: list[str] = []
    manifests = [prep.adopt(str(root), log=log.append) for root in (folder, remote)]
    assert manifests[0] == manifests[1]
    local_files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {path.relative_to(remote).as_posix() for path, _ in remote.walk()} == local_files
    assert prep.verify(str(remote), deep=True)
    prep.adopt(str(remote), log=log.append)
    assert log[-1] == f"{remote} is up to date"
    # another process adopts the files while this one reads them
    write_files = adopted_files.write_files

    def interfere(*arguments: object) -> None:
        (remote / "dataset.json").write_bytes(b"{}")
        write_files(*arguments)

    monkeypatch.setattr(adopted_files, "write_files", interfere)
    with raises(BuildError, "adopt-overtaken", manifest_name="dataset.json"):
        prep.adopt(str(remote), prep.AdoptOptions(name="other"), overwrite=True, log=log.append)


def test_a_dataset_in_a_bucket_is_not_repaired(bucket):
    with raises(ValueError, "repair-remote"):
        prep.repair(f"{bucket.url}/data")
