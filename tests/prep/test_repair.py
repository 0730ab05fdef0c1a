"""repair: options of builds, reports, and inputs that are refused; see tests/verbs for the files."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tests.errors import raises
from tests.pictures import image_file
from tfshards.prep import ImageFolder, ImageOptions, Options, repair, verify
from tfshards.prep.building.restore import restored_options
from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.schemas import FormatError, InputError, read_manifest
from tfshards.schemas.index import index_path
from tfshards.schemas.option import recorded_values

from .derived import flip

STAMP = 1_600_000_000 * 10**9


@pytest.fixture
def photos(image_folder) -> Path:
    """Forty images of two classes, two of them duplicates, and three files that are not images."""
    good = {f"{('cat', 'dog')[number % 2]}/{number:02d}.png": min(number, 37) for number in range(40)}
    return image_folder({**good, **{f"cat/bad{number}.png": b"no image" for number in range(3)}})


@pytest.fixture
def dataset(photos, tmp_path, quiet_build) -> Path:
    quiet_build(ImageFolder(photos), tmp_path / "out", shards=4, options=Options(max_rejected="50%"))
    return tmp_path / "out"


def shard_path(root: Path, number: int = 0) -> Path:
    return root / read_manifest(root).shards[number].path


def index_file(root: Path, number: int = 0) -> Path:
    return root / index_path(read_manifest(root).shards[number].path)


def rejects_file(root: Path) -> Path:
    return root / f"rejected-{read_manifest(root).build_id}.jsonl"


def states(root: Path) -> dict[str, tuple[int, int]]:
    found = {path.relative_to(root).as_posix(): path.stat() for path in root.rglob("*") if path.is_file()}
    return {name: (status.st_ino, status.st_mtime_ns) for name, status in found.items()}


def test_an_intact_dataset_is_not_changed(dataset, photos):
    whole = states(dataset)
    made = repair(dataset, photos)
    assert (made.found, made.repaired, made.left) == ((), (), ())
    assert states(dataset) == whole


def test_without_a_source_shards_stay_damaged_and_are_reported(dataset):
    damaged = {flip(shard_path(dataset)).name, flip(index_file(dataset, 1), 0).name}
    made = repair(dataset)
    assert {Path(problem.place).name for problem in made.found} == damaged
    assert made.repaired == (index_file(dataset, 1).relative_to(dataset).as_posix(),)
    assert made.left == verify(dataset).problems
    assert [problem.place for problem in made.left] == [shard_path(dataset).name]


# options of each build
BUILDS = {
    "stratified": Options(splits={"train": 0.75, "val": 0.25}, stratify=True),
    "grouped, shards of single splits": Options(splits={"a": 0.5, "b": 0.5}, group_by="([0-9])"),
    "duplicates left out": Options(duplicates="drop", compression="gzip", name="other"),
}


@pytest.mark.parametrize("options", BUILDS.values(), ids=BUILDS)
def test_the_options_of_a_build_come_from_its_manifest(options, photos, tmp_path, quiet_build, contents):
    out = tmp_path / "out"
    options = replace(options, max_rejected="50%")
    shards = {"a": 3, "b": 1} if "a" in options.splits else 2
    (photos / "cat" / "bad0.png").rename(photos / "cat" / "bad0.1.png")
    quiet_build(ImageFolder(photos), out, shards=shards, seed=7, options=options)
    restored = restored_options(read_manifest(out))
    assert (restored.to_json(), restored.compression) == (options.to_json(), options.compression)
    before = contents(out)
    for number in range(len(read_manifest(out).shards)):
        flip(shard_path(out, number))
    flip(rejects_file(out))
    assert repair(out, photos).left == ()
    assert contents(out) == before


IMAGE_OPTIONS = (
    ImageOptions(channels=1, format="png", max_pixels=10_000),
    ImageOptions(channels="keep", alpha="keep", resize="8x9", animation="first"),
    ImageOptions(alpha="drop", format="jpeg", jpeg_quality=80),
)


@pytest.mark.parametrize("options", IMAGE_OPTIONS, ids=repr)
def test_image_options_come_from_the_manifest(options, small_folder, tmp_path, quiet_build, contents):
    out = tmp_path / "out"
    os.symlink(small_folder / "cat" / "00.png", small_folder / "cat" / "link.png")
    quiet_build(ImageFolder(small_folder, options, follow_links=True), out, shards=2)
    recorded = json.loads(json.dumps(read_manifest(out).to_json()["options"]))
    restored = ImageOptions(**recorded_values(ImageOptions, recorded))
    assert restored.to_json() == options.to_json()
    before = contents(out)
    flip(shard_path(out))
    assert repair(out, str(small_folder)).left == ()
    assert contents(out) == before


def refused(root: Path, source: object, match: str, contents) -> None:
    """Assert that the repair is refused and changes nothing."""
    before = contents(root)
    with pytest.raises(InputError, match=match):
        repair(root, source)
    assert contents(root) == before


def test_other_inputs_are_refused_and_the_error_names_the_difference(dataset, photos, contents, monkeypatch):
    flip(shard_path(dataset))
    record = next(dataset.glob("inputs-*.npz"))
    recorded = record.read_bytes()
    record.unlink()
    path = photos / "cat" / "02.png"
    size = path.stat().st_size
    difference = "built from: their number, names, sizes, labels, splits, features or class names differ"
    os.truncate(path, size + 1)
    refused(dataset, photos, difference, contents)
    os.truncate(path, size)
    path.rename(photos / "cat" / ".hidden.png")
    refused(dataset, photos, difference, contents)
    (photos / "cat" / ".hidden.png").rename(path)
    (photos / "cat").rename(photos / "emu")
    refused(dataset, ImageFolder(photos), difference, contents)
    (photos / "emu").rename(photos / "cat")
    record.write_bytes(recorded)
    later = {**decoder_versions(), "pillow": "99.0", "pillow_new": "1.0"}
    monkeypatch.setattr("tfshards.prep.sources.image_file.decoder_versions", lambda: later)
    match = (
        r"built from: pillow is '99\.0' instead of '[0-9.]+'; pillow_new is '1\.0' instead of absent; give"
    )
    refused(dataset, photos, match, contents)


def plain_png(gray: int) -> bytes:
    """Return an image whose size in bytes does not depend on its content."""
    return image_file(Image.new("L", (4, 4), gray), "PNG", compress_level=0)


def test_other_inputs_of_the_same_size_and_time_are_refused(image_folder, tmp_path, quiet_build, contents):
    root = image_folder({f"{number}.png": plain_png(number) for number in range(4)})
    out = tmp_path / "out"
    quiet_build(ImageFolder(root), out, shards=1)
    flip(shard_path(out))
    image_folder({"2.png": plain_png(99)})
    match = (
        r"out-train-.*-00001: the inputs now give bytes of digest sha256:[0-9a-f]{64} instead of "
        r"sha256:[0-9a-f]{64}; the content of an input has changed; give the inputs that the dataset"
    )
    refused(out, root, match, contents)
    image_folder({"2.png": bytes(len(plain_png(2)))})
    refused(out, root, r"2\.png: was accepted, but is unreadable now; it changed during the build", contents)
    image_folder({"2.png": plain_png(2)})
    assert repair(out, root).left == ()


def test_other_rejects_are_refused(dataset, photos, contents):
    flip(rejects_file(dataset))
    bad = photos / "cat" / "bad0.png"
    bad.write_bytes(b"NO IMAGE")
    os.utime(bad, ns=(STAMP, STAMP))
    refused(
        dataset,
        photos,
        r"rejected-.*: the rejected inputs, or the reasons, differ from those in the",
        contents,
    )


def test_a_damaged_manifest_cannot_be_repaired(dataset, photos):
    path = dataset / "dataset.json"
    path.write_text(path.read_text().replace('"name": "out"', '"name": "oat"'))
    with pytest.raises(FormatError, match=r"digest: does not match"):
        repair(dataset, photos)


def test_a_source_without_the_splits_of_the_dataset_is_refused(image_folder, tmp_path, quiet_build):
    root = image_folder({f"{split}/a/{n}.png": n for split in ("train", "test") for n in range(3)})
    flat = image_folder({f"a/{number}.png": number for number in range(3)}, name="flat")
    out = tmp_path / "out"
    quiet_build(ImageFolder(root), out)
    flip(shard_path(out))
    with raises(InputError, "inputs-differ"):
        repair(out, [flat])
    next(out.glob("inputs-*.npz")).unlink()
    with raises(InputError, "inputs-differ"):
        repair(out, [flat])


def test_a_source_that_does_not_exist_is_an_error_even_if_nothing_is_damaged(dataset):
    for given in ("nowhere", "x=nowhere.npy"):
        with raises(InputError, "repair-input-missing", given=given):
            repair(dataset, [given])
