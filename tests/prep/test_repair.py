"""repair: options of builds, reports, and inputs that are refused; see tests/verbs for the files."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tests.format_reader import companion
from tests.pictures import image_file
from tfshards import prep
from tfshards.prep import Arrays, ColumnRoles, ImageFolder, ImageOptions, Options, Table, repair, verify
from tfshards.schemas import BuildError, FormatError, InputError, OptionsError, read_manifest

from .derived import first_shard, flip

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


def rejects_file(root: Path) -> Path:
    return root / f"rejected-{read_manifest(root).build_id}.jsonl"


def test_without_a_source_shards_stay_damaged_and_are_reported(dataset):
    assert repair(dataset).found == ()
    index = dataset / companion(read_manifest(dataset).shards[1].path, "idx")
    damaged = {flip(first_shard(dataset)).name, flip(index, 0).name}
    made = repair(dataset)
    assert {Path(problem.place).name for problem in made.found} == damaged
    assert made.repaired == (index.relative_to(dataset).as_posix(),)
    assert made.left == verify(dataset).problems
    assert [problem.place for problem in made.left] == [first_shard(dataset).name]


# options of each build
BUILDS = {
    "stratified": ({}, 2, Options(splits={"train": 0.75, "val": 0.25}, stratify=True, max_rejected="50%")),
    "grouped, shards of single splits": (
        {"images": ImageOptions(channels="keep", alpha="keep", resize="8x9", animation="first")},
        {"a": 3, "b": 1},
        Options(splits={"a": 0.5, "b": 0.5}, group_by="([0-9])", max_rejected="50%"),
    ),
    "duplicates left out": (
        {"images": ImageOptions(channels=1, format="png", max_pixels=10_000), "class_names": ("dog", "cat")},
        2,
        Options(duplicates="drop", compression="gzip", name="other", max_rejected="50%"),
    ),
    "links and a class without a folder": (
        {
            "images": ImageOptions(alpha="drop", format="jpeg", jpeg_quality=80),
            "follow_links": True,
            "class_names": ("owl", "dog", "cat"),
            "allow_missing_classes": True,
        },
        2,
        Options(max_rejected="50%"),
    ),
}


@pytest.mark.parametrize(("of_images", "shards", "options"), BUILDS.values(), ids=BUILDS)
def test_the_options_of_a_build_come_from_its_manifest(
    of_images, shards, options, photos, tmp_path, quiet_build, contents
):
    out = tmp_path / "out"
    (photos / "cat" / "bad0.png").rename(photos / "cat" / "bad0.1.png")
    os.symlink(photos / "cat" / "00.png", photos / "cat" / "40.png")
    made = quiet_build(ImageFolder(photos, **of_images), out, shards=shards, seed=7, options=options)
    before = contents(out)
    for shard in made.shards:
        flip(out / shard.path)
    flip(rejects_file(out))
    assert repair(out, str(photos)).left == ()
    assert contents(out) == before


def split_folders(folder: Path, image_folder) -> tuple[object, list[Path]]:
    root = image_folder(
        {f"{split}/{c}/{n}.png": n for split in ("train", "test") for c in "ab" for n in range(3)}
    )
    return ImageFolder(root), [root]


def table_of_images(folder: Path, image_folder) -> tuple[object, list[Path]]:
    images = image_folder({f"{number}.png": number for number in range(12)}, "images")
    rows = ["file_name,depth,color,part,noise"]
    rows += [
        f"{n}.png,{n}.png,{('red', 'blue')[n % 2]},{'train' if n % 3 else 'test'},x{n}" for n in range(12)
    ]
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    columns = ColumnRoles(images=("depth",), label="color", split="part", drop=("noise",))
    return Table(folder / "table.csv", columns=columns, root=images), [folder / "table.csv", images]


def table_of_numbers(folder: Path, image_folder) -> tuple[object, list[Path]]:
    (folder / "t.csv").write_text("x,label\n" + "".join(f"{n},{n % 3}\n" for n in range(9)))
    return Table(folder / "t.csv"), [folder / "t.csv"]


def arrays(folder: Path, image_folder) -> tuple[object, list[Path]]:
    paths = [folder / "x.npy", folder / "y.npy"]
    for path in paths:
        np.save(path, np.arange(10))
    # without names, which a path cannot have
    return Arrays.open([f"{path.stem}={path}" for path in paths]), paths


@pytest.mark.parametrize("make", [split_folders, table_of_images, table_of_numbers, arrays])
def test_inputs_of_every_kind_are_given_by_their_paths(make, tmp_path, image_folder, quiet_build, contents):
    out = tmp_path / "out"
    source, paths = make(tmp_path, image_folder)
    made = quiet_build(source, out, shards=2)
    before = contents(out)
    flip(out / made.shards[-1].path)
    if make is table_of_numbers:
        with raises(OptionsError, "inputs-number"):
            repair(out, [*paths, tmp_path])
    if make is split_folders:
        flat = image_folder({f"a/{number}.png": number for number in range(3)}, name="flat")
        with raises(InputError, "inputs-differ"):
            repair(out, [flat])
    assert repair(out, paths).left == ()
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
    monkeypatch.setattr("tfshards.prep.sources.image_file.decoder_versions", lambda: {"pillow": "99.0"})
    assert "99.0" in refused(dataset, photos, contents)


def plain_png(gray: int) -> bytes:
    """Return an image whose size in bytes does not depend on its content."""
    return image_file(Image.new("L", (4, 4), gray), "PNG", compress_level=0)


def test_other_inputs_of_the_same_size_and_time_are_refused(image_folder, tmp_path, quiet_build, contents):
    root = image_folder({f"{number}.png": plain_png(number) for number in range(4)})
    out = tmp_path / "out"
    quiet_build(ImageFolder(root), out, shards=1)
    name = flip(first_shard(out)).name
    image_folder({"2.png": plain_png(99)})
    assert name in refused(out, root, contents, "repair-differs")
    image_folder({"2.png": bytes(len(plain_png(2)))})
    assert "2.png" in refused(out, root, contents, "input-changed")
    image_folder({"2.png": plain_png(2)})
    assert repair(out, root).left == ()


def test_other_rejects_are_refused(dataset, photos, contents):
    flip(rejects_file(dataset))
    bad = photos / "cat" / "bad0.png"
    bad.write_bytes(b"NO IMAGE")
    os.utime(bad, ns=(STAMP, STAMP))
    assert rejects_file(dataset).name in refused(dataset, photos, contents, "repair-rejects-differ")


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
