"""``--duplicates``: equal content is kept, dropped or reported, for any name, class, split or runner."""

import hashlib
import json
import zlib

import numpy as np
import pytest

from tests.errors import raises
from tfshards.prep import ColumnRoles, ImageFolder, ImageOptions, Options, Table, verify
from tfshards.prep.building.output_state import up_to_date
from tfshards.prep.records.example import example_encoder
from tfshards.prep.records.frames import read_records
from tfshards.prep.records.values import content_digest
from tfshards.schemas import BuildError, Feature, InputError, Manifest, Schema
from tfshards.schemas.example import decode_example

DROP = Options(duplicates="drop")

FAIL = Options(duplicates="fail")


def kept(out, manifest: Manifest) -> list[str]:
    """Return the keys in the dataset, sorted."""
    return sorted(
        decode_example(data)["key"][0].decode("utf-8", "surrogateescape")
        for shard in manifest.shards
        for _, data in read_records(out / shard.path, "none")
    )


def listed(out) -> list[tuple[str, str, str]]:
    """Return key, reason and detail of each line of the rejects file."""
    return [
        (line["key"], line["reason"], line["detail"])
        for path in out.glob("rejected-*.jsonl")
        for line in map(json.loads, path.open())
    ]


# Equal numbers are equal images: the keys that are kept, and the pairs of duplicates.
FOLDERS = {
    "none": ({"a/1.png": 1, "a/2.png": 2}, {}),
    "in one class": ({"a/1.png": 1, "a/2.png": 2, "a/3.png": 1}, {"a/3.png": "a/1.png"}),
    "in two classes": ({"b/1.png": 1, "a/2.png": 1, "b/3.png": 3}, {"b/1.png": "a/2.png"}),
    "in two splits": (
        {"val/a/1.png": 1, "train/a/2.png": 1, "val/a/3.png": 3, "train/a/0.png": 0},
        {"val/a/1.png": "train/a/2.png"},
    ),
    "three times, and others twice": (
        {"1.png": 1, "2.png": 1, "3.png": 1, "4.png": 4, "5.png": 4},
        {"2.png": "1.png", "3.png": "1.png", "5.png": "4.png"},
    ),
    "sorted by bytes, not as text": (
        {"\udcff.png": 1, "\U0001f600.png": 1, "z\n.png": 1},
        {"\udcff.png": "z\n.png", "\U0001f600.png": "z\n.png"},
    ),
}


@pytest.mark.parametrize(("files", "dropped"), FOLDERS.values(), ids=FOLDERS)
def test_the_equal_image_with_the_smallest_key_is_kept(files, dropped, image_folder, tmp_path, quiet_build):
    out = tmp_path / "out"
    manifest = quiet_build(ImageFolder(image_folder(files), as_is=True), out, options=DROP)
    assert kept(out, manifest) == sorted(set(files) - set(dropped))
    assert listed(out) == [
        (key, "duplicate", f"has the content of {of!r}") for key, of in sorted(dropped.items())
    ]
    assert manifest.totals.reasons["rejected"] == ({"duplicate": len(dropped)} if dropped else {})
    assert manifest.options["duplicates"] == "drop"
    assert verify(out, deep=True)


def test_shards_stay_balanced_after_dropping_duplicates(image_folder, tmp_path, quiet_build, contents):
    # seven images of a, each repeated in b; and two equal files that are not images and not compared
    files = {f"{('a', 'b')[n % 2]}/{n:02}.png": n % 23 for n in range(30)}
    root = image_folder({**files, "a/bad1.png": b"no image", "b/bad2.png": b"no image"})
    options = Options(duplicates="drop", max_rejected="10%")
    manifest = quiet_build(ImageFolder(root), tmp_path / "out", shards=4, options=options)
    assert sorted(shard.num_examples for shard in manifest.shards) == [5, 6, 6, 6]
    assert manifest.totals.reasons["rejected"] == {"duplicate": 7, "unreadable": 2}
    assert manifest.splits["train"].label_counts == {"a": 15, "b": 8}
    args = ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
    other = tmp_path / "other" / "out"
    quiet_build(ImageFolder(root), other, shards=4, options=options, beam_args=args)
    assert contents(other) == contents(tmp_path / "out")


def test_duplicates_do_not_count_towards_the_limit_of_rejects(image_folder, tmp_path, quiet_build):
    files = dict.fromkeys([f"{n:02}.png" for n in range(50)], 1)
    strict = Options(duplicates="drop", max_rejected=0)
    source = ImageFolder(image_folder(files), as_is=True)
    assert quiet_build(source, tmp_path / "out", options=strict).num_examples == 1
    root = image_folder({**files, "bad.png": b""})
    with raises(BuildError, "too-many-rejected", num_rejects=1, inputs=51):
        quiet_build(ImageFolder(root), tmp_path / "2" / "out", options=strict)


def test_fewer_distinct_examples_than_shards_end_the_build(image_folder, tmp_path, quiet_build):
    root = image_folder({"1.png": 1, "2.png": 1})
    with pytest.raises(BuildError, match=r"shards=2 exceeds the 1 example of split 'train'; use at most 1$"):
        quiet_build(ImageFolder(root), tmp_path / "out", shards=2, options=DROP)


def test_a_folder_of_only_rejects_has_no_duplicates(image_folder, tmp_path, quiet_build):
    root = image_folder({"1.png": b"", "2.png": b""})
    with raises(BuildError, "split-rejected", split="train"):
        quiet_build(ImageFolder(root), tmp_path / "out", options=Options(duplicates="drop", max_rejected=1))


CONTRADICTIONS = {
    "no two labels": ({"a/1.png": 1, "a/2.png": 1}, []),
    "one": (
        {"b/1\x1b.png": 1, "a/1.png": 1, "a/2.png": 1},
        [
            r"warning: 1 of 2 duplicates differ in the label from the example that is kept, such as "
            r"'b/1\x1b.png', which equals 'a/1.png'"
        ],
    ),
    "two": (
        {"b/1.png": 1, "a/1.png": 1, "b/2.png": 1},
        [
            "warning: 2 of 2 duplicates differ in the label from the example that is kept, such as "
            "'b/1.png', which equals 'a/1.png'"
        ],
    ),
    "no labels": ({"1.png": 1, "2.png": 1}, []),
}


@pytest.mark.parametrize(("files", "warnings"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_other_labels_of_duplicates_are_a_warning(files, warnings, image_folder, tmp_path, quiet_build, log):
    quiet_build(ImageFolder(image_folder(files), as_is=True), tmp_path / "out", options=DROP)
    assert [line for line in log if line.startswith("warning: ") and "duplicates" in line] == warnings


def test_fail_names_pairs_and_commits_nothing(image_folder, tmp_path, quiet_build):
    root = image_folder({"a/1.png": 1, "b/\n2.png": 1, **{f"b/{n}.png": 1 for n in range(3, 10)}})
    with pytest.raises(BuildError) as caught:
        quiet_build(ImageFolder(root), tmp_path / "out", options=FAIL)
    lines = str(caught.value).split("\n")
    assert lines[:2] == [
        "8 inputs have the content of another, and duplicates='fail' was given:",
        r"  'b/\n2.png' (duplicate): has the content of 'a/1.png'",
    ]
    assert len(lines) == 7
    assert lines[-1] == "  and 3 more"
    assert not (tmp_path / "out" / "dataset.json").exists()
    for path in root.glob("b/[3-9].png"):
        path.unlink()
    message = r"^1 input has the content of another, and duplicates='fail' was given:"
    with pytest.raises(BuildError, match=message):
        quiet_build(ImageFolder(root), tmp_path / "out", options=FAIL)


def test_fail_without_duplicates_is_recorded_in_the_manifest(small_folder, tmp_path, quiet_build, log):
    manifest = quiet_build(ImageFolder(small_folder), tmp_path / "out", options=FAIL)
    assert manifest.options["duplicates"] == "fail"
    assert manifest.num_examples == 13
    log.clear()
    assert quiet_build(ImageFolder(small_folder), tmp_path / "out", options=FAIL) == manifest
    assert log == [up_to_date(tmp_path / "out", is_compared=False)]


def test_a_dataset_that_was_never_compared_is_not_up_to_date(image_folder, tmp_path, quiet_build):
    root, out = image_folder({"1.png": 1, "2.png": 1}), tmp_path / "out"
    quiet_build(ImageFolder(root), out)
    for options in (DROP, FAIL):
        with raises(InputError, "dataset-differs"):
            quiet_build(ImageFolder(root), out, options=options)
    with pytest.raises(BuildError, match="has the content of another"):
        quiet_build(ImageFolder(root), out, options=FAIL, overwrite=True)
    assert quiet_build(ImageFolder(root), out, options=DROP, overwrite=True).num_examples == 1


def test_stored_values_are_compared(image_folder, tmp_path, quiet_build):
    root = image_folder({"1.png": 1, "2.png": 2})
    picture = (root / "1.png").read_bytes()
    # the same pixels in other bytes: a comment before the end
    (root / "2.png").write_bytes(picture[:-12] + comment() + picture[-12:])
    assert quiet_build(ImageFolder(root), tmp_path / "as it is" / "out", options=DROP).num_examples == 2
    recoded = ImageFolder(root, ImageOptions(resize="3x3"))
    manifest = quiet_build(recoded, tmp_path / "out", options=DROP)
    assert kept(tmp_path / "out", manifest) == ["1.png"]
    # conversions of the dropped image are not counted
    assert set(manifest.totals.conversions.values()) == {1}


def comment() -> bytes:
    body = b"tEXtComment\0hello"
    return len(body[4:]).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


X = np.arange(24).reshape(6, 4)

X[4] = X[1]


def test_the_label_of_a_table_is_excluded_under_any_name(tmp_path, quiet_build):
    (tmp_path / "t.csv").write_text("x,species\n1,a\n2,a\n1,b\n")
    source = Table(tmp_path / "t.csv", columns=ColumnRoles(label="species"))
    manifest = quiet_build(source, tmp_path / "out", options=DROP)
    assert kept(tmp_path / "out", manifest) == ["0", "1"]


def test_the_digest_of_content_is_that_of_the_record_without_key_and_label():
    image, key, label = (
        Feature("i", "image", "uint8", (None, None, 3)),
        Feature("key", "bytes", "bytes"),
        Feature("y", "label", "int64"),
    )
    digest = content_digest(Schema((key, label, image)))
    # encoded in several parts
    data = bytes(5000)
    record = b"".join(example_encoder(Schema((image,)))([data]))
    assert digest([b"k", 0, data]) == hashlib.blake2b(record, digest_size=16).hexdigest()
    assert digest([b"k", 0, data]) == digest([b"l", 1, data]) != digest([b"k", 0, data[1:]])
