"""repair: options of builds, reports, and inputs that are refused; see tests/verbs for the files."""

import json
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tests.pictures import image_file
from tfshards.prep import Arrays, ImageFolder, ImageOptions, Options, repair, verify
from tfshards.prep.building.restore import restored_options
from tfshards.prep.cli.main import main
from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.schemas import FormatError, InputError, OptionsError, read_manifest
from tfshards.schemas.index import index_path, labels_path
from tfshards.schemas.manifest_file import write_manifest
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


@pytest.mark.parametrize(
    ("digest", "path_of"), [("index_digest", index_path), ("labels_digest", labels_path)]
)
def test_an_intact_file_is_not_changed_if_its_listed_digest_is_wrong(digest, path_of, dataset, contents):
    manifest = read_manifest(dataset)
    train = manifest.splits["train"]
    other = replace(train.shards[0], **{digest: "sha256:" + "0" * 64})
    splits = {"train": replace(train, shards=(other, *train.shards[1:]))}
    write_manifest(replace(manifest, splits=splits), dataset)
    before = contents(dataset)
    made = repair(dataset)
    assert (made.repaired, [problem.place for problem in made.left]) == ((), [path_of(other.path)])
    assert contents(dataset) == before


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


def test_split_folders_and_a_label_map_need_no_options(image_folder, tmp_path, quiet_build, contents):
    files = {f"{split}/{name}/{n}.png": n for split in ("train", "test") for name in "ab" for n in range(3)}
    root = image_folder(files)
    quiet_build(ImageFolder(root, class_names=("b", "a")), tmp_path / "out", shards=2)
    before = contents(tmp_path / "out")
    flip(shard_path(tmp_path / "out", 2))
    assert repair(tmp_path / "out", root).left == ()
    assert contents(tmp_path / "out") == before


def test_classes_without_a_folder_are_repaired(image_folder, tmp_path, quiet_build, contents):
    root = image_folder({"a/1.png": 1, "a/2.png": 2})
    source = ImageFolder(root, class_names=("b", "a"), allow_missing_classes=True)
    quiet_build(source, tmp_path / "out")
    before = contents(tmp_path / "out")
    flip(shard_path(tmp_path / "out"))
    assert repair(tmp_path / "out", root).left == ()
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
def test_inputs_may_be_any_kind_of_path(kind, array_files, photos, dataset, tmp_path, quiet_build):
    given = array_files(x=np.arange(10), y=np.arange(10.0))
    quiet_build(Arrays.open(given), tmp_path / "arrays", shards=2)
    flip(shard_path(tmp_path / "arrays"))
    # without names, which a path cannot have
    assert repair(tmp_path / "arrays", [kind(path.partition("=")[2]) for path in given]).left == ()
    flip(shard_path(dataset))
    assert repair(dataset, kind(photos)).left == ()


def make_table(image_folder, tmp_path: Path) -> tuple[Path, Path]:
    """A table with two images per row in another folder, classes, splits, and a column to drop."""
    images = image_folder({f"{number}.png": number for number in range(12)}, "images")
    rows = ["file_name,depth,color,part,noise,size"]
    rows += [
        f"{n}.png,{n}.png,{('red', 'blue')[n % 2]},{'train' if n % 3 else 'test'},x{n},{n}" for n in range(12)
    ]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(rows) + "\n")
    return table, images


def test_a_table_is_given_with_the_folder_of_its_images(image_folder, tmp_path, contents, capsys):
    table, images = make_table(image_folder, tmp_path)
    out = tmp_path / "out"
    columns = ["--image", "depth", "--label", "color", "--split-column", "part", "--drop", "noise"]
    build = ["build", "table", str(table), str(out), "--root", str(images), *columns, "--shards", "2"]
    assert main(build) == 0
    before = contents(out)
    flip(shard_path(out, 1))
    assert main(["verify", str(out), "--repair", str(table), "--repair", str(images)]) == 0
    assert contents(out) == before
    capsys.readouterr()


def test_a_table_without_images_needs_no_folder(tmp_path, contents, capsys):
    (tmp_path / "t.csv").write_text("x,label\n" + "".join(f"{n},{n % 3}\n" for n in range(9)))
    out = tmp_path / "out"
    assert main(["build", "table", str(tmp_path / "t.csv"), str(out), "--shards", "2"]) == 0
    before = contents(out)
    flip(shard_path(out, 1))
    assert main(["verify", str(out), "--repair", str(tmp_path / "t.csv")]) == 0
    assert contents(out) == before
    flip(shard_path(out, 1))
    with raises(OptionsError, "inputs-number"):
        repair(out, [tmp_path / "t.csv", tmp_path])
    capsys.readouterr()


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


def test_a_derived_dataset_is_refused(dataset, photos, contents):
    flip(shard_path(dataset))
    for options, how in (({}, "does not record how it was made"), ({"source": "merge"}, "was made by merge")):
        write_manifest(replace(read_manifest(dataset), options=options), dataset)
        refused(dataset, photos, f"'out' {how}; only shards of a dataset that one build made", contents)
    index_file(dataset, 1).unlink()
    assert len(repair(dataset).repaired) == 1


def test_a_dataset_that_cannot_be_written_is_reported(dataset, photos):
    flip(shard_path(dataset))
    (dataset / ".build").write_text("in the way")
    with raises(InputError, "foreign-file"):
        repair(dataset, photos)


def test_a_damaged_manifest_cannot_be_repaired(dataset, photos):
    path = dataset / "dataset.json"
    path.write_text(path.read_text().replace('"name": "out"', '"name": "oat"'))
    with pytest.raises(FormatError, match=r"digest: does not match"):
        repair(dataset, photos)


def test_the_command_prints_what_was_wrong_and_what_was_rebuilt(dataset, photos, capsys):
    def run(*arguments: object) -> tuple[int, str, str]:
        status = main(["verify", str(dataset), *map(str, arguments)])
        return (status, *capsys.readouterr())

    assert run("--repair") == (0, f"{dataset}: sound\n", "")
    name = flip(shard_path(dataset)).name
    index = index_file(dataset, 1).relative_to(dataset)
    (dataset / index).unlink()
    problem = f"{name}: its bytes have changed: the digest differs"
    assert run("--repair") == (
        1,
        f"{problem}\n{index}: cannot be read: No such file or directory\nrebuilt: {index}\nstill damaged:\n"
        f"{problem}\n{dataset}: 1 problem, 1 file rebuilt; shards can only be rebuilt from their source\n",
        "",
    )
    assert run("--repair") == (
        1,
        f"{problem}\n{dataset}: 1 problem; shards can only be rebuilt from their source\n",
        "",
    )
    status, out, _ = run("--repair", photos, "--json")
    assert (status, json.loads(out)["repaired"], json.loads(out)["left"]) == (0, [name], [])
    flip(shard_path(dataset))
    status, out, _ = run("--repair", photos)
    assert (status, out) == (0, f"{problem}\nrebuilt: {name}\n{dataset}: sound, 1 file rebuilt\n")
    for more in ("--deep", "--decode"):
        status, out, err = run("--repair", photos, more)
        assert (status, out) == (2, "")
        assert err == (
            f"tfshards: --repair compares digests and cannot be combined with {more}; repair first, then "
            f"verify again with {more}\n"
        )
    assert Fraction(1) == restored_options(read_manifest(dataset)).rejected_share


def test_the_sources_may_come_before_the_dataset(array_files, tmp_path, quiet_build, capsys):
    given = array_files(x=np.arange(10), y=np.arange(10.0))
    out = tmp_path / "out"
    quiet_build(Arrays.open(given), out, shards=2)
    name = flip(shard_path(out)).name
    sources = [text for path in given for text in ("--repair", path)]
    assert main(["verify", *sources, str(out)]) == 0
    assert f"rebuilt: {name}\n" in capsys.readouterr().out


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
