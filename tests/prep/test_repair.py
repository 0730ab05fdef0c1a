"""repair: what follows from sound shards and the manifest is rebuilt, and a command is named for the rest."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.errors import raises
from tests.format_reader import companion, digest_of, with_digest
from tests.prep.derived import first_shard, flip, write_images
from tests.reported import logged
from tfshards.prep import ImageFolder, Options, append, prune, remove, restore, verify
from tfshards.schemas import FormatError, InputError, Manifest, read_manifest

SHARDS = {"train": 3, "val": 1}


@pytest.fixture
def photos(tmp_path) -> Path:
    """Forty images of two classes, and three files that are not images."""
    return write_images(tmp_path / "photos", range(40), [f"cat/bad{number}.png" for number in range(3)])


@pytest.fixture
def dataset(photos, tmp_path, quiet_build) -> Path:
    """A compressed dataset whose images come in two splits."""
    build(quiet_build, photos, tmp_path / "out")
    return tmp_path / "out"


def build(quiet_build, photos: Path, out: Path, *, overwrite: bool = False) -> Manifest:
    options = Options(splits={"train": 0.8, "val": 0.2}, compression="gzip", max_rejected="50%")
    return quiet_build(ImageFolder(photos), out, shards=SHARDS, options=options, overwrite=overwrite)


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a bit": flip,
    "empty": empty,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_all_files_that_follow_from_shards_and_manifest_are_rebuilt(damage, dataset, contents):
    before, manifest = contents(dataset), read_manifest(dataset)
    follow = {path for shard in manifest.shards for path in shard.companion_digests} | {*manifest.views}
    follow.add(f"{manifest.folder}/dataset.json")
    assert {Path(path).suffix for path in follow} == {".idx", ".keys", ".labels", ".txt", ".json"}
    for path in follow:
        damage(dataset / path)
    assert {problem.place for problem in verify(dataset).problems} == follow
    report = verify(dataset, repair=True)
    assert report
    assert ({*report.repaired}, report.problems, report.remedies) == (follow, (), ())
    assert contents(dataset) == before
    assert not verify(dataset, repair=True).repaired
    assert verify(dataset, deep=True)


def test_the_command_that_is_named_for_damaged_shards_repairs_them(dataset, photos, contents, quiet_build):
    before, manifest = contents(dataset), read_manifest(dataset)
    shard, other = (dataset / each.path for each in manifest.shards[:2])
    flip(shard)
    empty(other)
    for each in (shard, other):
        # which could be made only from sound records
        (dataset / companion(each.relative_to(dataset).as_posix(), "idx")).unlink()
    damaged, problems = contents(dataset), verify(dataset).problems
    report = verify(dataset, repair=True)
    assert not report
    assert (report.repaired, report.problems, contents(dataset)) == ((), problems, damaged)
    (remedy,) = report.remedies
    assert remedy.startswith(f"{manifest.folder}: 'tfshards build images … {dataset} --overwrite'")
    build(quiet_build, photos, dataset, overwrite=True)
    assert contents(dataset) == before


def test_the_same_build_writes_a_lost_file_of_each_kind_again(dataset, photos, contents, quiet_build):
    before, manifest = contents(dataset), read_manifest(dataset)
    kinds = {Path(path).suffix: path for path in manifest.data_paths if path != manifest.rejects_path}
    for path in kinds.values():
        (dataset / path).unlink()
        build(quiet_build, photos, dataset)
        assert contents(dataset) == before


@pytest.mark.parametrize("others", [(), ("labels.txt", "shard")], ids=["alone", "and other files"])
def test_a_damaged_list_of_rejects_is_made_by_a_build_of_all(others, dataset, photos, quiet_build):
    manifest = read_manifest(dataset)
    flip(dataset / manifest.rejects_path)
    for name in others:
        flip(first_shard(dataset) if name == "shard" else dataset / manifest.folder / name)
    report = verify(dataset, repair=True)
    assert manifest.rejects_path in [problem.place for problem in report.problems]
    assert f"tfshards build images … {dataset} --overwrite" in report.remedies[0]
    made = build(quiet_build, photos, dataset, overwrite=True)
    # the same content in the next folder, since nothing else shows what was left out
    assert (made.build_id, made.folder) == (manifest.build_id, f"{manifest.folder}-2")
    assert verify(dataset, deep=True)


def test_a_build_whose_manifest_was_lost_is_repaired_without_overwrite(
    dataset, photos, quiet_build, contents
):
    before, manifest = contents(dataset), read_manifest(dataset)
    flip(dataset / companion(manifest.shards[0].path, "idx"))
    (dataset / "dataset.json").unlink()
    assert build(quiet_build, photos, dataset) == manifest
    assert contents(dataset) == before


def test_a_damaged_shard_of_inputs_that_changed_unnoticed_is_not_replaced(photos, tmp_path, quiet_build):
    out = tmp_path / "out"
    manifest = build(quiet_build, photos, out)
    path = photos / "cat" / "000.png"
    times, size = path.stat(), path.stat().st_size
    path.write_bytes(bytes(size))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    (shard,) = (s for s in manifest.shards if b"cat/000.png" in gzip.decompress((out / s.path).read_bytes()))
    flip(out / shard.path)
    with pytest.raises(InputError):
        build(quiet_build, photos, out, overwrite=True)
    assert read_manifest(out) == manifest
    assert [problem.place for problem in verify(out).problems] == [shard.path]


def test_shards_of_an_edit_are_repaired_by_the_edit_of_the_generation_before(
    photos, tmp_path, contents, quiet_build
):
    out = tmp_path / "out"
    old = build(quiet_build, photos, out)
    new = logged(remove, print)(out, keys=["cat/000.png"])
    before = contents(out)
    flip(out / next(shard.path for shard in new.shards if shard.path.startswith(new.folder)))
    (remedy,) = verify(out, repair=True).remedies
    assert remedy.startswith(f"{new.folder}: ")
    assert all(word in remedy for word in ("remove", "tfshards generations", "restore"))
    logged(restore, print)(out, old.folder)
    assert logged(remove, print)(out, keys=["cat/000.png"]) == new
    # the bytes of a complete build are compared if it becomes the dataset
    assert contents(out) == before


def test_nothing_is_written_into_a_folder_that_tfshards_did_not_make(dataset, contents):
    folder = first_shard(dataset).parent
    (folder / "build.json").unlink()
    (folder / "labels.txt").unlink()
    before = contents(dataset)
    report = verify(dataset, repair=True)
    assert {problem.place for problem in report.problems} == {
        f"{folder.name}/labels.txt",
        f"{folder.name}/build.json",
    }
    assert "build.json" in report.remedies[0]
    assert contents(dataset) == before


def test_a_damaged_manifest_is_refused_and_its_copy_makes_it_again(dataset, contents):
    before, folder = contents(dataset), read_manifest(dataset).folder
    flip(dataset / "dataset.json")
    with raises(FormatError, code="format"):
        verify(dataset, repair=True)
    logged(restore, print)(dataset, folder)
    assert contents(dataset) == before
    with pytest.raises(InputError) as caught:
        verify(dataset / "none", repair=True)
    assert "does not exist" in str(caught.value)


def test_a_record_that_does_not_show_whose_folder_it_is_in_is_named(dataset):
    record = f"{read_manifest(dataset).folder}/build.json"
    damaged = (dataset / record).read_bytes().replace(b"tfshards build", b"tfshardz build")
    (dataset / record).write_bytes(damaged)
    assert [problem.place for problem in verify(dataset).problems] == [record]
    report = verify(dataset, repair=True)
    assert (report.repaired, [problem.place for problem in report.problems]) == ((), [record])
    assert "build.json" in report.remedies[0]
    assert (dataset / record).read_bytes() == damaged


def test_shards_of_an_earlier_build_are_repaired_by_it_and_the_newest_is_restored(
    photos, tmp_path, contents, quiet_build
):
    out = tmp_path / "out"
    old = build(quiet_build, photos, out)
    write_images(photos, range(40, 50))
    new = logged(append, print)(ImageFolder(photos), out)
    before = contents(out)
    flip(out / old.shards[0].path)
    (remedy,) = verify(out, repair=True).remedies
    assert remedy.startswith(f"{old.folder}: 'tfshards build images … {out} --overwrite'")
    assert f"'tfshards restore {out} {new.folder}'" in remedy
    for number in range(40, 50):
        next(photos.glob(f"*/{number:03d}.png")).unlink()
    assert build(quiet_build, photos, out, overwrite=True) == old
    assert logged(restore, print)(out, new.folder) == new
    assert contents(out) == before
    assert verify(out, deep=True)


def test_a_file_whose_digest_is_not_that_of_what_follows_stays(dataset, contents):
    """As after a change of the release that wrote the views."""
    document = json.loads((dataset / "dataset.json").read_text())
    (path,) = [path for path in document["views"] if path.endswith("/labels.txt")]
    document["views"][path] = digest_of(b"emu\n")
    for name in ("dataset.json", f"{document['folder']}/dataset.json"):
        (dataset / name).write_bytes(with_digest(json.dumps(document).encode()))
    before = contents(dataset)
    assert [problem.place for problem in verify(dataset, repair=True).problems] == [path]
    assert contents(dataset) == before


def test_damaged_shards_are_repaired_from_inputs_with_other_times(dataset, photos, contents, quiet_build):
    before, manifest = contents(dataset), read_manifest(dataset)
    flip(first_shard(dataset))
    for path in photos.rglob("*.png"):
        os.utime(path, ns=(5, 5))
    assert build(quiet_build, photos, dataset, overwrite=True) == manifest
    after = contents(dataset)
    record = f"{manifest.folder}/build.json"
    assert before.pop(record) != after.pop(record)
    assert after == before


def test_shards_of_a_build_that_prune_left_in_part_are_copied_from_a_repeated_one(
    photos, tmp_path, contents, quiet_build
):
    out = tmp_path / "out"
    old = build(quiet_build, photos, out)
    write_images(photos, range(40, 50))
    new = logged(append, print)(ImageFolder(photos), out)
    logged(prune, print)(out)
    before = contents(out)
    first, second = (shard.path for shard in old.shards[:2])
    flip(out / first)
    (out / second).unlink()
    (remedy,) = verify(out, repair=True).remedies
    assert remedy.startswith(f"{old.folder}: 'tfshards build images … {out} --overwrite'")
    for number in range(40, 50):
        next(photos.glob(f"*/{number:03d}.png")).unlink()
    again = build(quiet_build, photos, out, overwrite=True)
    assert (again.build_id, again.folder) == (old.build_id, f"{old.folder}-2")
    logged(restore, print)(out, new.folder)
    assert [problem.place for problem in verify(out).problems] == [first]
    # a copy that is damaged itself is not taken
    flip(out / again.shards[0].path)
    assert not verify(out, repair=True).repaired
    flip(out / again.shards[0].path)
    assert verify(out, repair=True).repaired == (first,)
    assert verify(out, deep=True)
    logged(prune, print)(out)
    assert contents(out) == before
