"""repair: options of builds, reports, and inputs that are refused; see tests/verbs for the files."""

import os
from pathlib import Path

import pytest
from PIL import Image

from tests.errors import raises
from tests.pictures import image_file
from tfshards import prep
from tfshards.prep import ImageFolder, ImageOptions, Options, repair
from tfshards.schemas import BuildError, FormatError, InputError, read_manifest

from .derived import first_shard, flip


@pytest.fixture
def photos(image_folder) -> Path:
    """Forty images of two classes, two of them duplicates, and three files that are not images."""
    good = {f"{('cat', 'dog')[number % 2]}/{number:02d}.png": min(number, 37) for number in range(40)}
    return image_folder({**good, **{f"cat/bad{number}.png": b"no image" for number in range(3)}})


@pytest.fixture
def dataset(photos, tmp_path, quiet_build) -> Path:
    quiet_build(ImageFolder(photos), tmp_path / "out", shards=4, options=Options(max_rejected="50%"))
    return tmp_path / "out"


def rejects_file(root: Path) -> Path:
    return root / f"rejected-{read_manifest(root).build_id}.jsonl"


# sources and options of builds
BUILDS = [
    ({}, Options(splits={"train": 0.75, "val": 0.25}, stratify=True, max_rejected="50%")),
    (
        {"images": ImageOptions(channels="keep", alpha="keep", resize="8x9", animation="first")},
        Options(splits={"a": 0.5, "b": 0.5}, group_by="([0-9])", max_rejected="50%"),
    ),
    (
        {"images": ImageOptions(channels=1, format="png", max_pixels=10_000), "class_names": ("dog", "cat")},
        Options(duplicates="drop", compression="gzip", name="other", max_rejected="50%"),
    ),
    (
        {
            "images": ImageOptions(animation="first", format="jpeg", jpeg_quality=80),
            "follow_links": True,
            "class_names": ("owl", "dog", "cat"),
        },
        Options(max_rejected="50%"),
    ),
]


@pytest.mark.parametrize(("of_images", "options"), BUILDS, ids=range(len(BUILDS)))
def test_the_options_of_a_build_come_from_its_manifest(
    of_images, options, photos, tmp_path, quiet_build, contents
):
    out = tmp_path / "out"
    (photos / "cat" / "bad0.png").rename(photos / "cat" / "bad0.1.png")
    os.symlink(photos / "cat" / "00.png", photos / "cat" / "40.png")
    (photos / "owl").mkdir()
    made = quiet_build(ImageFolder(photos, **of_images), out, shards=2, seed=7, options=options)
    before = contents(out)
    for shard in made.shards:
        flip(out / shard.path)
    flip(rejects_file(out))
    assert repair(out, str(photos)).left == ()
    assert contents(out) == before


def refused(root: Path, source: object, contents, code: str = "inputs-differ") -> str:
    """Assert that the repair is refused and changes nothing; return the message."""
    before = contents(root)
    with pytest.raises((InputError, BuildError)) as raised:
        repair(root, source)
    assert raised.value.code == code, raised.value
    assert contents(root) == before
    return str(raised.value)


def test_other_inputs_are_refused(dataset, photos, contents, monkeypatch):
    flip(first_shard(dataset))
    record = next(dataset.glob("inputs-*.npz"))
    recorded = record.read_bytes()
    record.unlink()
    path = photos / "cat" / "02.png"
    size = path.stat().st_size
    os.truncate(path, size + 1)
    refused(dataset, photos, contents)
    os.truncate(path, size)
    path.rename(photos / "cat" / ".hidden.png")
    refused(dataset, photos, contents)
    (photos / "cat" / ".hidden.png").rename(path)
    (photos / "cat").rename(photos / "emu")
    refused(dataset, ImageFolder(photos), contents)
    (photos / "emu").rename(photos / "cat")
    record.write_bytes(recorded)
    # another release of what decodes images
    monkeypatch.setattr("tfshards.prep.sources.pictures.decoder_versions", lambda: {"pillow": "99.0"})
    assert "99.0" in refused(dataset, photos, contents)


def test_other_inputs_of_the_same_size_and_time_are_refused(image_folder, tmp_path, quiet_build, contents):
    # images whose sizes in bytes do not depend on their content
    plain = [image_file(Image.new("L", (4, 4), gray), "PNG", compress_level=0) for gray in (0, 1, 2, 3, 99)]
    root = image_folder({f"{number}.png": plain[number] for number in range(4)} | {"bad.png": b"no image"})
    out = tmp_path / "out"
    quiet_build(ImageFolder(root), out, shards=1, options=Options(max_rejected=1))
    flip(first_shard(out))
    image_folder({"2.png": plain[4]})
    assert first_shard(out).name in refused(out, root, contents, "repair-differs")
    image_folder({"2.png": bytes(len(plain[2]))})
    assert "2.png" in refused(out, root, contents, "input-changed")
    image_folder({"2.png": plain[2]})
    assert repair(out, root).left == ()
    flip(rejects_file(out))
    image_folder({"bad.png": b"NO IMAGE"})
    assert rejects_file(out).name in refused(out, root, contents, "repair-rejects-differ")


def test_what_cannot_be_repaired_is_refused(dataset, photos):
    for given in ("nowhere", "x=nowhere.npy"):
        # even if nothing is damaged
        with raises(InputError, "repair-input-missing", given=given):
            repair(dataset, [given])
    path = dataset / "dataset.json"
    path.write_text(path.read_text().replace('"name": "out"', '"name": "oat"'))
    with raises(FormatError, "format"):
        repair(dataset, photos)
    with raises(FormatError, "format"):
        prep.verify(dataset)
