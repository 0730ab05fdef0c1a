"""append: which inputs are new, what is reported of the others, and what is refused; see tests/verbs."""

import json
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.errors import fault, raises
from tests.pictures import image_file
from tfshards import prep
from tfshards.prep import Arrays, ImageFolder, ImageOptions, Options, Table, merge, verify
from tfshards.prep import append as append_by_any_engine
from tfshards.prep import build as build_by_any_engine
from tfshards.prep.cli.main import main
from tfshards.prep.rewriting import keys as known
from tfshards.prep.sources.base import Source
from tfshards.schemas import BuildError, InputError, Manifest, OptionsError, read_manifest
from tfshards.schemas.example import decode_key
from tfshards.schemas.manifest_file import write_manifest

from .derived import quiet, records, write, write_images

# The tests of the command run Apache Beam.
append = partial(append_by_any_engine, engine="local")

build = partial(build_by_any_engine, engine="local")

SPLIT = Options(splits={"train": "0.7", "val": "0.3"}, max_rejected=1)


def keys(root: Path) -> dict[str, set[bytes]]:
    return {split: {decode_key(data) or b"" for data in held} for split, held in records(root).items()}


@pytest.fixture
def grown(tmp_path) -> tuple[ImageFolder, Path, Manifest]:
    """A folder that has grown from 30 images to 50 since its dataset was built in two splits."""
    photos = write_images(tmp_path / "photos", range(30), ["cat/old.png"])
    old = build(ImageFolder(photos), tmp_path / "out", shards=2, options=SPLIT, log=quiet)
    write_images(photos, range(30, 50), ["dog/new.png"])
    write(photos / ".hidden", b"")
    return ImageFolder(photos), tmp_path / "out", old


def test_a_rejected_image_that_was_fixed_is_a_new_example(grown, log):
    source, out, _ = grown
    append(source, out, max_rejected=1, log=quiet)
    good = (Path(source.root) / "cat" / "000.png").read_bytes()
    (Path(source.root) / "cat" / "old.png").write_bytes(good)
    (Path(source.root) / "dog" / "new.png").unlink()
    made = append(source, out, log=log.append)
    assert log[0] == "1 new input, 50 known"
    assert made.num_examples == 51
    assert (made.totals.rejected, made.totals.entries) == (1, 53)
    assert b"cat/old.png" in set().union(*keys(out).values())


def make_table(folder: Path, count: int, bad: tuple[int, ...] = ()) -> Path:
    """A table of images in a separate folder, with classes, splits, and a column that is not stored."""
    rows = ["file_name,color,part,noise"]
    for n in range(count):
        rows.append(f"{n:03d}.png,{('red', 'blue')[n % 2]},{'train' if n % 3 else 'test'},x{n}")
        image = write_images(folder / "made", [n]) / ("cat", "dog")[n % 2] / f"{n:03d}.png"
        write(folder / "images" / f"{n:03d}.png", b"no image" if n in bad else image.read_bytes())
    write(folder / "table.csv", "\n".join(rows).encode())
    return folder / "table.csv"


def touch_all(root: Path) -> None:
    for path in root.rglob("*.*"):
        os.utime(path, ns=(5, 5))


def test_rejected_inputs_with_the_same_content_and_another_time_are_not_new(grown, contents, log):
    source, out, _ = grown
    append(source, out, max_rejected=1, log=quiet)
    before = contents(out)
    touch_all(Path(source.root))
    append(source, out, log=log.append)
    assert log[-1] == f"{out} is up to date: none of the 52 inputs is new, and none has changed"
    assert contents(out) == before
    # of the same size, but rejected for another reason
    (Path(source.root) / "cat" / "old.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with raises(BuildError, "too-many-rejected", num_rejects=1, inputs=1):
        append(source, out, log=quiet)


def test_a_dropped_duplicate_is_new_only_if_its_content_has_changed(tmp_path, contents):
    photos, out = write_images(tmp_path / "photos", range(10)), tmp_path / "out"
    good = (photos / "cat" / "000.png").read_bytes()
    write(photos / "cat" / "same.png", good)
    options = Options(duplicates="drop", max_rejected=1)
    assert build(ImageFolder(photos), out, shards=1, options=options, log=quiet).totals.rejected == 1
    before = contents(out)
    touch_all(photos)
    append(photos, out, log=quiet)
    assert contents(out) == before
    # without the original, nothing shows that it is a duplicate
    shutil.copytree(photos, tmp_path / "more")
    (tmp_path / "more" / "cat" / "000.png").unlink()
    more = append(tmp_path / "more", out, log=quiet)
    assert (more.num_examples, more.totals.rejected) == (11, 0)


SOURCES = {
    "images": lambda folder, count: (
        ImageFolder(
            write_images(folder / "photos", range(count)),
            ImageOptions(channels=1, resize="5x5"),
            class_names=("dog", "cat"),
            follow_links=True,
        ),
        [folder / "photos"],
        Options(splits={"train": "0.6", "val": "0.4"}, group_by=r"(\d)\.png"),
    ),
    "a table": lambda folder, count: (
        Table(
            make_table(folder, count),
            ImageOptions(jpeg_quality=90),
            prep.ColumnRoles(label="color", split="part", drop=("noise",)),
            root=folder / "images",
        ),
        [folder / "table.csv", folder / "images"],
        Options(compression="gzip"),
    ),
    "arrays": lambda folder, count: (
        Arrays.open(array_files(folder, count), ("x",), ("a", "b", "c")),
        [*array_files(folder, count)],
        Options(splits={"train": "0.6", "val": "0.4"}, stratify=True),
    ),
}


def array_files(folder: Path, count: int) -> list[str]:
    folder.mkdir(exist_ok=True)
    np.save(folder / "x.npy", np.arange(count * 3).reshape(count, 3))
    np.save(folder / "label.npy", np.arange(count) % 2)
    return [f"x={folder / 'x.npy'}", f"label={folder / 'label.npy'}"]


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_append_takes_the_options_from_the_manifest(make, tmp_path, contents, capsys):
    """Assert that paths alone give the same as a source with the options of the build."""
    source, _, options = make(tmp_path, 20)
    build(source, tmp_path / "by_source" / "out", shards=1, options=options, log=quiet)
    for name in ("by_paths", "by_command"):
        shutil.copytree(tmp_path / "by_source", tmp_path / name)
    source, inputs, _ = make(tmp_path, 33)
    if isinstance(source, ImageFolder):
        # new images may belong to only some of the classes
        source = replace(source, class_names=None)
    wanted = append(source, tmp_path / "by_source" / "out", shards=2, log=quiet)
    assert wanted.num_examples == 33
    assert append(inputs, tmp_path / "by_paths" / "out", shards=2, log=quiet) == wanted
    command = ["append", *map(str, inputs), str(tmp_path / "by_command" / "out"), "--shards", "2", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["build_id"] == wanted.build_id
    assert contents(tmp_path / "by_paths") == contents(tmp_path / "by_source")
    assert contents(tmp_path / "by_command") == contents(tmp_path / "by_source")


def test_a_merge_of_builds_with_different_options_is_refused(tmp_path):
    for part, images in (("one", ImageOptions()), ("two", ImageOptions(jpeg_quality=90))):
        photos = write_images(tmp_path / part / "photos", [ord(part[0]), ord(part[1])])
        build(ImageFolder(photos, images), tmp_path / part / "out", log=quiet)
    merge([tmp_path / "one" / "out", tmp_path / "two" / "out"], tmp_path / "both", log=quiet)
    with raises(InputError, "builds-differ", manifest="both"):
        append(tmp_path / "one" / "photos", tmp_path / "both", log=quiet)


def test_an_adopted_dataset_is_refused(tmp_path):
    photos = write_images(tmp_path / "photos", range(4))
    build(ImageFolder(photos), tmp_path / "out", shards=1, log=quiet)
    (tmp_path / "out" / "dataset.json").unlink()
    prep.adopt(tmp_path / "out", log=quiet)
    with raises(InputError, "records-no-build", manifest="out", get="adopt"):
        append(photos, tmp_path / "out", log=quiet)


def test_columns_that_the_dataset_lacks_are_left_out_and_listed(tmp_path, log):
    write(tmp_path / "t.csv", b"text,size\na,1\nb,2")
    build(Table(tmp_path / "t.csv"), tmp_path / "out", shards=1, log=quiet)
    write(tmp_path / "t.csv", b"text,size,split,more\na,1,x,x\nb,2,x,x\nc,3,x,x")
    assert append(tmp_path / "t.csv", tmp_path / "out", log=log.append).num_examples == 3
    assert log[0] == "columns left out because the dataset does not have them: split, more"


def test_links_out_of_the_folder_are_followed_only_on_request(tmp_path):
    table = make_table(tmp_path, 4)
    out = tmp_path / "out"
    build(Table(table, root=tmp_path / "images"), out, shards=1, log=quiet)
    make_table(tmp_path, 5)
    image = tmp_path / "images" / "004.png"
    image.rename(tmp_path / "elsewhere.png")
    image.symlink_to(tmp_path / "elsewhere.png")
    with raises(InputError, "outside", given="004.png"):
        append([table, tmp_path / "images"], out, log=quiet)
    paths = [str(table), str(tmp_path / "images"), str(out)]
    assert main(["append", *paths, "--follow-links"]) == 0
    assert read_manifest(out).num_examples == 5


def test_links_cannot_be_followed_without_images(tmp_path, array_files):
    given, out = array_files(x=np.arange(4)), str(tmp_path / "out")
    build(Arrays.open(given), out, shards=1, log=quiet)
    with raises(OptionsError, "follow-links-useless"):
        append(given, out, follow_links=True, log=quiet)


def test_a_class_without_examples_so_far_is_split_by_the_ratios(tmp_path):
    def arrays(count: int) -> Arrays:
        return Arrays({"x": np.arange(count), "label": (np.arange(count) >= 20).astype(int)}, (), ("a", "b"))

    options = Options(splits={"train": "0.5", "val": "0.5"}, stratify=True)
    build(arrays(20), tmp_path / "out", shards=1, options=options, log=quiet)
    made = append(arrays(220), tmp_path / "out", shards=1, log=quiet)
    assert set(made.split_cuts["cuts"]) == {"0", "1"}
    assert made.split_cuts["cuts"]["1"] == ["8" + "0" * 31]
    assert 70 <= made.splits["val"].label_counts["b"] <= 130
    assert made.splits["val"].label_counts["a"] == 10


def eels(photos: Path) -> Source:
    write(photos / "eel" / "1.png", (photos / "cat" / "000.png").read_bytes())
    return ImageFolder(photos)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (eels, fault("classes-new", classes="class 'eel'")),
        (
            lambda photos: ImageFolder(photos, ImageOptions(jpeg_quality=50)),
            fault("append-options-differ", name="jpeg_quality", options=50),
        ),
        (lambda _: Arrays({"x": np.arange(2), "label": np.array(["cat", "dog"])}), "append-features-differ"),
        (ImageFolder, fault("shards-too-many-of-splits", asked="shards=99", split="train")),
    ],
)
def test_a_source_that_does_not_fit_is_refused(make, message, grown, contents):
    source, out, _ = grown
    before = contents(out)
    with raises(InputError, message):
        append(make(Path(source.root)), out, shards=99, max_rejected=1, log=quiet)
    assert contents(out) == before


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        ([7], {}, "source-not-paths"),
        (7, {}, fault("source-not-paths", given=7)),
        (ImageFolder("x"), {"follow_links": True}, "follow-links-of-source"),
        (["a", "b"], {}, "inputs-number"),
        ([], {}, "inputs-number"),
        ("x", {"max_rejected": "200%"}, fault("max-rejected-range", given="200%")),
        ("x", {"max_rejected": 2}, fault("max-rejected-range", given="2")),
    ],
)
def test_arguments_that_are_not_valid_are_refused(source, arguments, message, grown, contents):
    _, out, _ = grown
    before = contents(out)
    with raises(OptionsError, message):
        append(source, out, log=quiet, **arguments)
    assert contents(out) == before


def test_a_dataset_without_keys_cannot_be_appended_to(tmp_path):
    old = build(Arrays({"x": np.arange(4)}), tmp_path / "out", shards=1, log=quiet)
    features = tuple(replace(f, name="id") if f.name == "key" else f for f in old.schema.features)
    write_manifest(replace(old, schema=replace(old.schema, features=features)), tmp_path / "out")
    with raises(InputError, "append-no-keys"):
        append(Arrays({"x": np.arange(5)}), tmp_path / "out", log=quiet)


def test_rebuilding_an_appended_dataset_requires_overwrite_and_a_failure_keeps_all_shards(grown):
    source, out, _ = grown
    made = append(source, out, max_rejected=1, log=quiet)
    with raises(InputError, "dataset-differs"):
        build(source, out, shards=7, options=SPLIT, log=quiet)
    write(Path(source.root) / "cat" / "000.png", b"bad")
    with raises(BuildError, "too-many-rejected"):
        build(source, out, shards=2, overwrite=True, options=replace(SPLIT, max_rejected=0), log=quiet)
    assert read_manifest(out) == made
    assert verify(out, deep=True)


@pytest.fixture
def photos(tmp_path) -> Path:
    """A folder of 20 images whose dataset is ``out``; the two largest were converted, since they are BMP."""
    photos = write_images(tmp_path / "photos", range(18))
    for name in ("cat/big.bmp", "dog/big.bmp"):
        write(photos / name, bmp("red" if "cat" in name else "blue"))
    build(ImageFolder(photos), tmp_path / "out", shards=3, log=quiet)
    return photos


def lines_of_append(photos: Path, **arguments) -> list[str]:
    lines: list[str] = []
    append(photos, photos.parent / "out", log=lines.append, **arguments)
    return lines


UNCHANGED = "out is up to date: none of the 20 inputs is new, and none has changed"

OVERWRITE = (
    "the dataset keeps the old content: a new input needs another name, and to replace an old one, build "
    "again with --overwrite"
)


def test_a_changed_input_is_reported_and_not_called_up_to_date(photos, contents):
    before = contents(photos.parent / "out")
    larger = (photos / "cat" / "004.png").read_bytes()
    # as old as all others, so that only its size shows the change
    write(photos / "cat" / "000.png", larger)
    lines = lines_of_append(photos)
    assert lines[0] == "comparing the contents of 1 input, which may have changed"
    assert lines[1] == f"warning: 1 input has changed, such as 'cat/000.png'; {OVERWRITE}"
    assert lines[2].endswith("out keeps the old content: none of the 20 inputs is new")
    assert contents(photos.parent / "out") == before
    # together with new inputs
    (photos / "dog" / "big.bmp").write_bytes(bmp("green"))
    write_images(photos, [30])
    lines = lines_of_append(photos)
    assert lines[1:3] == [
        f"warning: 2 inputs have changed, such as 'cat/000.png'; {OVERWRITE}",
        "1 new input, 20 known",
    ]


def bmp(color: str) -> bytes:
    return image_file(Image.new("RGB", (9, 9), color), "BMP")


def test_touched_and_copied_inputs_are_compared_by_their_content(photos):
    for path in photos.rglob("*.*"):
        os.utime(path)
    compares, unchanged = lines_of_append(photos)
    assert compares == "comparing the contents of 20 inputs, which may have changed"
    assert unchanged.endswith(UNCHANGED)
    # of the same size, which only the content shows
    raw = bytearray((photos / "dog" / "big.bmp").read_bytes())
    raw[-10] ^= 255
    (photos / "dog" / "big.bmp").write_bytes(raw)
    (photos / "cat" / "002.png").write_bytes(b"damaged")
    assert lines_of_append(photos)[1].startswith("warning: 2 inputs have changed, such as 'cat/002.png'; ")


def test_inputs_that_the_source_lacks_are_reported(photos, tmp_path, log):
    (photos / "cat" / "004.png").unlink()
    assert lines_of_append(photos)[0] == (
        "1 known input not in the source, such as 'cat/004.png': kept in the dataset, and left out by a "
        "build with --overwrite; a renamed input is a new one"
    )
    (photos / "cat" / "006.png").unlink()
    assert lines_of_append(photos)[0].startswith("2 known inputs not in the source, such as 'cat/00")
    more = write_images(tmp_path / "more" / "photos", range(50, 53))
    append(more, tmp_path / "out", log=log.append)
    assert log[0] == f"the source holds only new inputs; 20 known inputs of {tmp_path / 'out'} kept"


def test_arrays_with_other_names_are_named_as_in_the_build(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4))
    np.save(tmp_path / "lab.npy", np.zeros(4, np.int64))
    arrays = Arrays({"x": np.arange(4), "labels": np.arange(4)}, label="labels")
    build(arrays, tmp_path / "out", log=quiet)
    with raises(InputError, fault("array-unknown", role="label", name="labels")):
        append([tmp_path / "x.npy", tmp_path / "lab.npy"], tmp_path / "out", log=quiet)


def test_rows_with_another_class_or_split_have_changed(tmp_path, log):
    table, out = make_table(tmp_path, 12), tmp_path / "out"
    columns = prep.ColumnRoles(label="color", split="part", drop=("noise",))
    build(Table(table, columns=columns, root=tmp_path / "images"), out, shards=1, log=quiet)
    text = table.read_text()
    table.write_text(
        text.replace("004.png,red", "004.png,blue").replace("006.png,red,test", "006.png,red,train")
    )
    append([table, tmp_path / "images"], out, log=log.append)
    assert f"warning: 2 inputs have changed, such as '004.png'; {OVERWRITE}" in log
    table.write_text(text)
    (tmp_path / "images" / "003.png").write_bytes((tmp_path / "images" / "004.png").read_bytes())
    append([table, tmp_path / "images"], out, log=log.append)
    assert log[-2] == f"warning: 1 input has changed, such as '003.png'; {OVERWRITE}"


def test_new_classes_follow_all_others_in_the_order_of_a_source_with_names(tmp_path, log):
    x = {"x": np.arange(4), "label": np.array(["b", "c", "b", "c"])}
    build(Arrays(x), tmp_path / "out", shards=1, log=quiet)
    more = {"x": np.arange(6), "label": np.array(["b", "c", "b", "c", "a", "d"])}
    with raises(InputError, "append-classes-differ"):
        append(Arrays(more, class_names=("a", "b", "c", "d")), tmp_path / "out", new_classes=True, log=quiet)
    named = Arrays(more, class_names=("b", "c", "d", "a"))
    made = append(named, tmp_path / "out", new_classes=True, log=log.append)
    assert made.schema.class_names == ("b", "c", "d", "a")
    assert log[0] == "new classes: 'd', 'a'"
    assert verify(tmp_path / "out", deep=True)


def test_new_classes_have_no_effect_without_class_names(tmp_path):
    build(Arrays({"x": np.arange(4), "label": np.arange(4)}), tmp_path / "out", shards=1, log=quiet)
    more = Arrays({"x": np.arange(6), "label": np.arange(6)})
    with raises(OptionsError, "new-classes-useless"):
        append(more, tmp_path / "out", new_classes=True, log=quiet)


def test_a_record_without_a_key_is_named(tmp_path, monkeypatch):
    build(Arrays({"x": np.arange(4)}), tmp_path / "out", shards=1, log=quiet)
    monkeypatch.setattr(known, "decode_key", lambda _: None)
    with pytest.raises(BuildError, match="record 0 at byte 0: has no key"):
        append(Arrays({"x": np.arange(5)}), tmp_path / "out", log=quiet)


def test_another_mask_is_found(tmp_path, log):
    for number in range(3):
        for kind in ("images", "masks"):
            folder = tmp_path / "photos" / kind
            folder.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 6), number).save(folder / f"{number}.png")
    build(ImageFolder(tmp_path / "photos"), tmp_path / "out", shards=1, log=quiet)
    Image.new("L", (8, 6), 9).save(tmp_path / "photos" / "masks" / "1.png")
    append(ImageFolder(tmp_path / "photos"), tmp_path / "out", log=log.append)
    (warning,) = [line for line in log if line.startswith("warning: ")]
    assert warning.startswith("warning: 1 input has changed, such as 'images/1.png' or its mask; ")


def write_parquet(path: Path, pixels: list[int]) -> Table:
    images = []
    for pixel in pixels:
        data = image_file(Image.new("L", (3, 3), pixel), "BMP")
        images.append({"bytes": data, "path": f"{len(images)}.bmp"})
    pq.write_table(pa.table({"image": images}), path)
    return Table(path)


def test_another_image_within_a_table_is_found(tmp_path, log):
    path = tmp_path / "table.parquet"
    build(write_parquet(path, [1, 2, 3]), tmp_path / "out", shards=1, log=quiet)
    append(write_parquet(path, [1, 9, 3]), tmp_path / "out", log=log.append)
    assert log[:2] == [
        "comparing the contents of 1 input, which may have changed",
        f"warning: 1 input has changed, such as '1.bmp'; {OVERWRITE}",
    ]


def test_only_inputs_with_another_size_or_time_are_compared(photos, tmp_path):
    """The times are those of all builds of the dataset; without a record of them, all are compared."""
    write_images(photos, range(20, 23))
    lines_of_append(photos)
    assert len(lines_of_append(photos)) == 1
    new, old = photos / "cat" / "022.png", photos / "cat" / "002.png"
    for path in (new, old):
        status = path.stat()
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(lines_of_append(photos)) == 1
    os.utime(new)
    changed = f"warning: 1 input has changed, such as 'cat/022.png'; {OVERWRITE}"
    assert lines_of_append(photos)[:2] == [
        "comparing the contents of 1 input, which may have changed",
        changed,
    ]
    for path in (tmp_path / "out").glob("inputs-*.npz"):
        path.unlink()
    changed = f"warning: 2 inputs have changed, such as 'cat/002.png'; {OVERWRITE}"
    assert lines_of_append(photos)[:2] == [
        "comparing the contents of 23 inputs, which may have changed",
        changed,
    ]


def test_the_source_may_hold_only_the_new_inputs(tmp_path):
    first = write_images(tmp_path / "first", range(10))
    write(first / ".hidden", b"")
    build(ImageFolder(first), tmp_path / "out", shards=1, log=quiet)
    # of only one class, which has another number in this folder
    more = write_images(tmp_path / "more", range(11, 16, 2))
    write(more / ".hidden", b"")
    made = append(ImageFolder(more), tmp_path / "out", log=quiet)
    assert made.splits["train"].label_counts == {"cat": 5, "dog": 8}
    assert verify(tmp_path / "out", deep=True)
    assert made.totals.skipped == 2
    assert made.totals.entries == 15


def test_new_inputs_that_are_all_rejected_are_counted(tmp_path, contents):
    photos = write_images(tmp_path / "photos", range(10))
    build(ImageFolder(photos), tmp_path / "out", shards=1, log=quiet)
    write_images(photos, (), ["cat/x.png"])
    with raises(BuildError, "too-many-rejected", num_rejects=1, inputs=1):
        append(ImageFolder(photos), tmp_path / "out", log=quiet)
    assert read_manifest(tmp_path / "out").totals.rejected == 0
    made = append(ImageFolder(photos), tmp_path / "out", max_rejected=1, log=quiet)
    assert (made.num_examples, made.totals.rejected) == (10, 1)
    assert verify(tmp_path / "out", deep=True)
    assert not any(made.build_id in path and "tfrecord" in path for path in contents(tmp_path / "out"))


def test_known_rows_with_another_content_and_new_ones_of_another_split_are_refused(tmp_path):
    build(Arrays({"x": np.arange(4)}), tmp_path / "x", log=quiet)
    with raises(InputError, "append-row-differs", row="0"):
        append(Arrays({"x": np.arange(5) + 1}), tmp_path / "x", log=quiet)
    write(tmp_path / "t.csv", b"text,split\na,train\nb,val\n")
    build(Table(tmp_path / "t.csv"), tmp_path / "t", log=quiet)
    write(tmp_path / "t.csv", b"text,split\na,train\nb,val\nc,test\n")
    with raises(InputError, "split-not-in-dataset", unknown="test"):
        append(Table(tmp_path / "t.csv"), tmp_path / "t", log=quiet)
