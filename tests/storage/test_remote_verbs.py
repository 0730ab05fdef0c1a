"""What reads a dataset reads it in an object store as on a disk; ``adopt`` writes its manifest there."""

import numpy as np
import pytest

from tests.durability.commands import image
from tests.format_reader import companion
from tests.pictures import write
from tests.reported import logged
from tests.surface.command import run
from tfshards import prep
from tfshards.prep import Arrays, ImageFolder, Options, build
from tfshards.prep.adoption import adopt as adopted_files
from tfshards.schemas import BuildError, InputError, read_manifest
from tfshards.schemas.storage import any_path


@pytest.fixture
def both(tmp_path, upload):
    """A dataset of 24 images on a disk, and its copy in a bucket."""
    for number in range(24):
        write(tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number:02}.png", image(number))
    write(tmp_path / "photos" / "cat" / "bad.png", b"no image")
    local = tmp_path / "data"
    options = Options(max_rejected="50%", compression="gzip", splits={"train": "75%", "val": "25%"})
    build(ImageFolder(tmp_path / "photos"), local, shards=2, options=options)
    return local, any_path(upload(local))


def lines(both, *command: str) -> list[list[str]]:
    """Return what a command prints of each of two datasets, with ``DATASET`` for its path."""
    found = []
    for dataset in both:
        ended = run([part.replace("DATASET", str(dataset)) for part in command])
        found.append([str(ended.status), *ended.out.replace(str(dataset), "DATASET").splitlines()])
    return found


def test_a_command_prints_of_a_dataset_in_a_bucket_what_it_prints_of_a_local_one(both):
    for command in (
        ["info", "DATASET", "--json"],
        ["verify", "DATASET", "--deep", "--decode"],
        ["show", "DATASET", "val:3"],
        ["show", "DATASET", "cat/04.png"],
        ["audit", "DATASET", "--distance", "none"],
    ):
        local, remote = lines(both, *command)
        assert local[0] == "0" or command[0] == "audit"
        assert len(local) > 1
        assert remote == local


def test_damage_in_a_bucket_is_reported_and_repaired_as_on_a_disk(both):
    manifest = read_manifest(both[0])
    shard = manifest.shards[1]
    follow = [*(companion(shard.path, name) for name in ("idx", "labels", "keys")), *manifest.views]
    for path in (shard.path, manifest.rejects_path, *follow):
        sound = (both[0] / path).read_bytes()
        for data in (sound[:3] + bytes([sound[3] ^ 1]) + sound[4:], sound[:-1], None):
            for root in both:
                (root / path).unlink() if data is None else (root / path).write_bytes(data)
            for option in ("--deep", "--repair"):
                local, remote = lines(both, "verify", "DATASET", option)
                assert local[0] == str(int(option == "--deep" or path not in follow))
                missing = "No such file or directory", "there is no such object"
                assert remote == [line.replace(*missing) for line in local]
            for root in both:
                assert path not in follow or (root / path).read_bytes() == sound
                (root / path).write_bytes(sound)


def test_files_in_a_bucket_are_adopted_as_on_a_disk(tmp_path, bucket, upload, monkeypatch):
    numbers = {"x": np.arange(40), "label": np.arange(40) % 3}
    options = Options(compression="gzip")
    made = build(Arrays(numbers), tmp_path / "built", shards=3, options=options)
    folder = tmp_path / "files"
    folder.mkdir()
    for number, shard in enumerate(made.shards):
        (tmp_path / "built" / shard.path).rename(folder / f"train-{number:05}-of-00003.tfrecord")
    (folder / "notes.txt").write_text("not records")
    remote = any_path(upload(folder, "files"))
    log: list[str] = []
    manifests = [logged(prep.adopt, log.append)(str(root)) for root in (folder, remote)]
    assert manifests[0] == manifests[1]
    local_files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {*remote.sizes_below()} == local_files
    assert prep.verify(str(remote), deep=True)
    logged(prep.adopt, log.append)(str(remote))
    assert "up to date" in log[-1]
    # a folder of the name of its build that is of somebody else
    (folder / manifests[0].folder / "build.json").write_text("{}")
    with pytest.raises(InputError, match=f"{bucket.url}/foreign/{manifests[0].folder}"):
        logged(prep.adopt, log.append)(upload(folder, "foreign"), name="files", overwrite=True)
    # another process adopts the files while this one reads them
    scan = adopted_files.scan

    def interfere(*arguments: object, **options: object) -> object:
        (remote / "dataset.json").write_bytes(b"{}")
        return scan(*arguments, **options)

    monkeypatch.setattr(adopted_files, "scan", interfere)
    with pytest.raises(BuildError, match=r"committed in the meantime"):
        logged(prep.adopt, log.append)(str(remote), name="other", overwrite=True)
