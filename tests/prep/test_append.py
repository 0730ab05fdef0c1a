"""append: which inputs are new, and what is refused; see tests/verbs."""

import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tests.reported import logged
from tfshards import prep
from tfshards.prep import Arrays, ImageFolder, ImageOptions, Options, Table, merge, verify
from tfshards.schemas import BuildError, InputError, OptionsError, read_manifest

from .derived import write, write_images

append = prep.append
build = partial(prep.build, shards=1)


def touch_all(root: Path) -> None:
    for path in root.rglob("*.*"):
        os.utime(path, ns=(5, 5))


def make_table(folder: Path, count: int) -> Path:
    """A table of images in a separate folder, with classes, splits, and a column that is not stored."""
    rows = ["file_name,color,part,noise"]
    for n in range(count):
        rows.append(f"{n:03d}.png,{('red', 'blue')[n % 2]},{'train' if n % 3 else 'test'},x{n}")
        image = write_images(folder / "made", [n]) / ("cat", "dog")[n % 2] / f"{n:03d}.png"
        write(folder / "images" / f"{n:03d}.png", image.read_bytes())
    write(folder / "table.csv", "\n".join(rows).encode())
    return folder / "table.csv"


def test_rejected_inputs_are_new_only_if_they_have_changed(tmp_path, contents):
    photos = write_images(tmp_path / "photos", range(30), ["cat/old.png", "dog/new.png"])
    out = tmp_path / "out"
    build(ImageFolder(photos), out, options=Options(max_rejected=1))
    before = contents(out)
    touch_all(photos)
    append(photos, out)
    assert contents(out) == before
    # of the same size, but rejected for another reason
    (photos / "cat" / "old.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with raises(BuildError, "rejected (", "1 of", "1 inputs", code="too-many-rejected"):
        append(photos, out)
    (photos / "cat" / "old.png").write_bytes((photos / "cat" / "000.png").read_bytes())
    (photos / "dog" / "new.png").unlink()
    made = append(photos, out)
    assert (made.num_examples, made.totals.rejected, made.totals.entries) == (31, 1, 32)


def test_a_dropped_duplicate_is_new_without_its_original(tmp_path):
    photos, out = write_images(tmp_path / "photos", range(10)), tmp_path / "out"
    write(photos / "cat" / "same.png", (photos / "cat" / "000.png").read_bytes())
    options = Options(duplicates="drop", max_rejected=1)
    assert build(ImageFolder(photos), out, options=options).totals.rejected == 1
    touch_all(photos)
    assert append(photos, out).totals.rejected == 1
    # nothing shows that it is a duplicate
    photos.joinpath("cat", "000.png").unlink()
    more = append(photos, out)
    assert (more.num_examples, more.totals.rejected) == (11, 0)


def test_datasets_whose_build_is_not_known_are_refused(tmp_path):
    for part, images in (("one", ImageOptions()), ("two", ImageOptions(jpeg_quality=90))):
        photos = write_images(tmp_path / part / "photos", [ord(part[0]), ord(part[1])])
        build(ImageFolder(photos, images), tmp_path / part / "out")
    merge([tmp_path / "one" / "out", tmp_path / "two" / "out"], tmp_path / "both")
    with raises(InputError, "the builds of 'both' differ in images"):
        append(tmp_path / "one" / "photos", tmp_path / "both")
    (tmp_path / "files").mkdir()
    for shard in (tmp_path / "one" / "out").glob("*/*.tfrecord-*"):
        shutil.copy(shard, tmp_path / "files")
    prep.adopt(tmp_path / "files")
    with raises(InputError, "was made by"):
        append(tmp_path / "one" / "photos", tmp_path / "files")


def test_a_class_without_examples_so_far_is_split_by_the_ratios(tmp_path):
    def arrays(count: int) -> Arrays:
        return Arrays({"x": np.arange(count), "label": (np.arange(count) >= 20).astype(int)}, {}, ("a", "b"))

    options = Options(splits={"train": "0.5", "val": "0.5"}, stratify=True)
    build(arrays(20), tmp_path / "out", options=options)
    made = append(arrays(220), tmp_path / "out", shards=1)
    assert 70 <= made.splits["val"].label_counts["b"] <= 130
    assert made.splits["val"].label_counts["a"] == 10


def test_sources_that_do_not_fit_are_refused(tmp_path, contents):
    photos, out = write_images(tmp_path / "photos", range(12)), tmp_path / "out"
    build(ImageFolder(photos), out)
    write_images(photos, range(12, 16))
    before = contents(out)
    names = Arrays({"x": np.arange(2), "label": np.array(["cat", "dog"])})
    for source, fault in (
        (ImageFolder(photos, ImageOptions(jpeg_quality=50)), "was built with"),
        (names, "class names of the other"),
        (ImageFolder(photos), "exceeds the"),
    ):
        with raises(InputError, fault):
            append(source, out, shards=99, max_rejected=1)
    write(photos / "eel" / "1.png", (photos / "cat" / "000.png").read_bytes())
    with raises(InputError, "class names lack", code="classes-new"):
        append(photos, out)
    for source, options, code in (
        *(([7], {}, "must be a path"), (7, {}, "must be a path")),
        *((["a", "b"], {}, "the inputs are"), ([], {}, "the inputs are")),
        *(("x", {"max_rejected": wrong}, "must be from 0% to 100%") for wrong in ("200%", 2)),
    ):
        with raises(OptionsError, code):
            append(source, out, **options)
    assert contents(out) == before


def test_rows_that_do_not_fit_are_refused(tmp_path, array_files):
    out, given = tmp_path / "out", array_files(x=np.arange(4), label=np.arange(4) % 2)
    build(Arrays({"x": np.arange(4), "labels": np.arange(4)}, {"labels": "label"}), out)
    with pytest.raises(InputError, match="does not begin with the rows"):
        append(Arrays({"x": np.arange(5) + 1, "labels": np.arange(5)}, {"labels": "label"}), out)
    with raises(InputError, "its columns are", "'labels'"):
        append([tmp_path / "x.npy", tmp_path / "label.npy"], out)
    build(Arrays(given), tmp_path / "a")
    with raises(OptionsError, "new_classes=True has"):
        append(Arrays(array_files(x=np.arange(6), label=np.arange(6) % 2)), tmp_path / "a", new_classes=True)
    rows = b"text,split\na,train\nb,val\n"
    write(tmp_path / "t.csv", rows)
    build(Table(tmp_path / "t.csv"), tmp_path / "t")
    write(tmp_path / "t.csv", rows + b"c,test\n")
    with raises(InputError, "the source has the", "'test'"):
        append(Table(tmp_path / "t.csv"), tmp_path / "t")


# Known inputs


@pytest.fixture
def photos(tmp_path) -> Path:
    """A folder of 20 images whose dataset is ``out``."""
    photos = write_images(tmp_path / "photos", range(20))
    build(ImageFolder(photos), tmp_path / "out", shards=3)
    return photos


def test_no_record_is_read(photos):
    """The shards need only have the sizes in the manifest: keys and labels are in files."""
    out = photos.parent / "out"
    old = prep.info(out).shards
    for shard in old:
        (out / shard.path).write_bytes(bytes(shard.num_bytes))
    write_images(photos, range(20, 23))
    made = append(photos, out)
    assert made.num_examples == 23
    assert {*old} < {*made.shards}


def test_rows_with_another_class_or_split_stay_as_they_are(tmp_path, contents):
    table, out = make_table(tmp_path, 12), tmp_path / "out"
    roles = {"color": "label", "part": "split", "noise": "drop"}
    build(Table(table, roles, root=tmp_path / "images"), out)
    before = contents(out)
    other = table.read_text().replace("004.png,red", "004.png,blue")
    table.write_text(other.replace("006.png,red,test", "006.png,red,train"))
    append([table, tmp_path / "images"], out)
    assert contents(out) == before


def test_a_folder_of_one_class_or_a_table_alone_does_not_fit(photos, tmp_path):
    with pytest.raises(InputError, match=r"the feature 'label' is .* and missing in the source"):
        append(photos / "cat", tmp_path / "out")
    table = make_table(tmp_path, 12)
    build(Table(table, root=tmp_path / "images"), tmp_path / "rows")
    with pytest.raises(InputError, match="in append after the table"):
        append(table, tmp_path / "rows")


# Rows that are known by their numbers


def test_a_source_of_rows_has_to_begin_with_those_of_the_dataset(tmp_path, contents):
    def rows(*values: int) -> Arrays:
        return Arrays({"x": np.array(values)})

    out, values = tmp_path / "out", [*range(20, 29)]
    build(rows(*values), out, shards=3)
    before = contents(out)
    # fewer rows may all be new
    for other in ([*range(40, 50)], [*values[:-2], 99, *values[-1:], 30], values[:-1]):
        with pytest.raises(InputError, match="does not begin with the rows"):
            append(rows(*other), out)
    assert contents(out) == before
    assert append(rows(*values), out) == read_manifest(out)
    assert append(rows(*values, 30, 31), out).num_examples == 11
    assert verify(out, deep=True)


# The folder of what was appended


@pytest.mark.parametrize("damage", ["none", "shard", "rejects"])
def test_after_restore_the_same_append_finds_its_folder_again(damage, photos, tmp_path, contents, log):
    out = tmp_path / "out"
    write_images(tmp_path / "more", range(30, 36), ["cat/bad.png"])
    old = prep.info(out)
    made = append(tmp_path / "more", out, shards=2, max_rejected="50%")
    before = contents(out)
    prep.restore(out, old.folder)
    path = {
        "none": made.shards[0].path,
        "shard": made.shards[-1].path,
        "rejects": made.rejects_path,
    }[damage]
    if damage != "none":
        (out / path).write_bytes((out / path).read_bytes()[:-1])
    again = logged(append, log.append)(tmp_path / "more", out, shards=2, max_rejected="50%")
    assert verify(out, deep=True)
    assert again.build_id == made.build_id
    if damage != "rejects":
        assert contents(out) == before
