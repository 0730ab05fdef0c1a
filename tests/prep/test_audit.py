"""Findings of an audit: equal and similar images, label conflicts, rare classes, odd sizes."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter

from tests.errors import raises
from tests.pictures import image_file as encoded
from tfshards.prep import Arrays, ImageFolder, audit
from tfshards.prep.auditing import repeats, similar
from tfshards.prep.auditing.audit import Audit, audit_text
from tfshards.prep.auditing.similar import near_pairs
from tfshards.prep.auditing.survey import Survey
from tfshards.prep.cli.main import main
from tfshards.prep.records.example import example_encoder
from tfshards.prep.records.frames import RecordError, frame, read_records
from tfshards.prep.records.shard_file import scan_shard
from tfshards.schemas import Feature, InputError, Manifest, Schema, Split, Totals, read_manifest
from tfshards.schemas.manifest import with_digest
from tfshards.schemas.manifest_file import write_manifest


def picture(number: int, size: tuple[int, int] = (160, 120)) -> Image.Image:
    """Return a picture of soft blobs, different for each number."""
    coarse = np.random.default_rng(number).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


@cache
def usual_file(number: int) -> bytes:
    """Return the PNG of a picture."""
    return encoded(picture(number))


IMAGE = (None, None, 3)
MakeDataset = Callable[..., Path]


@pytest.fixture
def dataset(image_folder, tmp_path, quiet_build) -> MakeDataset:
    """Build a dataset of the given files and some pictures of two classes in two splits."""

    def make(files: dict[str, bytes], class_names: list[str] | None = None) -> Path:
        usual = {
            f"{split}/{name}/{number}.png": usual_file(number + start)
            for split, start, count in (("train", 0, 24), ("val", 100, 20))
            for number in range(count)
            for name in [("cat", "dog")[number % 2]]
        }
        folder = image_folder({**usual, **files})
        quiet_build(ImageFolder(folder, class_names=class_names), tmp_path / "out", shards=2)
        return tmp_path / "out"

    return make


def found(made: Audit) -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """Return the findings as (kind, message, [(key of the example, key of the similar one, detail)])."""
    return [
        (
            finding.kind,
            finding.message,
            [
                (case.example.key if case.example else "", case.like.key if case.like else "", case.detail)
                for case in finding.instances
            ],
        )
        for finding in made.findings
    ]


def test_different_pictures_are_not_findings(dataset):
    made = audit(dataset({}))
    assert (made.findings, made.notes) == ((), ())
    assert made.num_examples == {"train": 24, "val": 20}
    assert made.label_counts == {"train": {"cat": 12, "dog": 12}, "val": {"cat": 10, "dog": 10}}


def test_a_distance_of_none_compares_bytes_only_as_blank_pages_are(dataset):
    blank = {
        f"{name}.png": encoded(Image.new("L", (160, 120), gray))
        for name, gray in (("train/cat/b0", 250), ("train/cat/b1", 251), ("val/cat/blank", 250))
    }
    copies = {"val/cat/copy.png": usual_file(0), "val/cat/near.jpg": encoded(picture(2), "JPEG")}
    out = dataset({**blank, **copies})
    same = "images of 'val' that are also in 'train': {} of 23 ({} the same, {} nearly the same)"
    for distance, numbers, note in (
        (None, (2, 2, 0), "only images with equal bytes were searched, not near-duplicates"),
        (32, (3, 2, 1), "images of nearly one color, compared by bytes only: 3"),
    ):
        made = audit(out, distance=distance)
        assert [finding.message for finding in made.findings] == [same.format(*numbers)]
        assert made.notes == (note,)


def test_duplicates_in_a_split_keep_the_largest_of_them(dataset):
    # the position of a file depends on its name
    again = {f"train/cat/{name}.png": usual_file(0) for name in ("again", "more")}
    poor = {f"train/dog/poor{number}.jpg": encoded(picture(number), "JPEG", quality=40) for number in (1, 3)}
    small = {f"train/cat/s{number}.png": encoded(picture(number).resize((80, 60))) for number in (0, 2, 4)}
    made = audit(dataset({**again, **poor, **small}))
    ((kind, message, cases),) = found(made)
    assert kind == "duplicate"
    assert message == (
        "images of 'train' that repeat another one of it: 7 of 31 (2 the same, 5 nearly the same)"
    )
    assert [detail for _, _, detail in cases][:2] == ["the same"] * 2
    assert {*poor, *small} < {*made.keys()}
    lines = audit_text(made).splitlines()
    assert lines[6] == "    and 2 more"


NEAR = {
    "a JPEG": lambda image: encoded(image, "JPEG", quality=80),
    "a poor JPEG": lambda image: encoded(image, "JPEG", quality=30),
    "a PNG written in another way": lambda image: encoded(image, "PNG", compress_level=1),
    "a WebP, which is stored as PNG": lambda image: encoded(image, "WEBP", quality=70),
    "half the size": lambda image: encoded(image.resize((80, 60))),
    "twice the size": lambda image: encoded(image.resize((320, 240)), "JPEG", quality=90),
    "another aspect": lambda image: encoded(image.resize((100, 100))),
    "brighter": lambda image: encoded(ImageEnhance.Brightness(image).enhance(1.1)),
    "grey": lambda image: encoded(image.convert("L")),
    "blurred": lambda image: encoded(image.filter(ImageFilter.GaussianBlur(2))),
}


def test_nearly_the_same_pictures_in_two_splits_are_leaks(dataset):
    copies = {f"val/dog/{what}.png": change(picture(p)) for p, (what, change) in enumerate(NEAR.items())}
    ((_, message, cases),) = [finding for finding in found(audit(dataset(copies))) if finding[0] == "leak"]
    assert message == "images of 'train' that are also in 'val': 10 of 24 (0 the same, 10 nearly the same)"
    originals = {f"train/{('cat', 'dog')[place % 2]}/{place}.png": what for place, what in enumerate(NEAR)}
    assert {first: second for first, second, _ in cases} == {
        original: f"val/dog/{what}.png" for original, what in originals.items()
    }


def test_the_keys_of_all_equal_examples_but_one_are_listed(image_folder, tmp_path, quiet_build, capsys):
    same, other = encoded(picture(1)), encoded(picture(2))
    copies = [f"{split}/cat/{number}.png" for split in ("train", "val", "test") for number in (1, 2)]
    files = {**dict.fromkeys(copies, same), "val/cat/a\nb.png": other, "val/cat/c.png": other}
    files |= {f"train/cat/{number}.png": encoded(picture(number)) for number in range(3, 8)}
    files |= {"test/dog/2.png": encoded(picture(9))}
    quiet_build(ImageFolder(image_folder(files)), tmp_path / "out")
    made = audit(tmp_path / "out", distance=None)
    listed = made.keys()
    # the one that stays is in the largest split
    (kept,) = [key for key in copies if key not in listed]
    assert kept.startswith("train/")
    assert len({"val/cat/a\nb.png", "val/cat/c.png"} & {*listed}) == 1
    assert len(listed) == 5 + 1
    assert made.keys(["conflict"]) == made.keys(["size"]) == []
    path = tmp_path / "keys"
    arguments = ["audit", str(tmp_path / "out"), "--distance", "none", "--keys", str(path)]
    assert main(arguments) == 0
    assert [json.loads(line) for line in path.read_text().splitlines()] == listed
    assert capsys.readouterr().err == f"wrote 6 keys to {path}\n"
    assert main([*arguments[:4], "--keys-of", "size"]) == 2
    assert "--keys-of has no effect without --keys; name a file" in capsys.readouterr().err
    assert main([*arguments[:-1], str(tmp_path / "no" / "keys")]) == 1
    assert "does not exist; name a file for a list of keys in an existing folder" in capsys.readouterr().err


def test_the_keys_of_a_conflict_are_listed_all_or_none(dataset, tmp_path, capsys):
    contested = {
        "train/dog/wrong.png": usual_file(0),
        "val/cat/again.png": usual_file(0),
        "val/cat/near.jpg": encoded(picture(0), "JPEG", quality=40),
    }
    out = dataset({**contested, "val/cat/leak.png": usual_file(2)})
    made = audit(out)
    conflict = sorted([*contested, "train/cat/0.png"])
    assert made.keys() == ["val/cat/leak.png"]
    assert made.keys(["duplicate"]) == []
    assert made.keys(["conflict"]) == conflict
    assert made.keys(["leak", "conflict"]) == sorted([*conflict, "val/cat/leak.png"])
    path = tmp_path / "keys"
    assert main(["audit", str(out), "--keys", str(path)]) == 0
    assert json.loads(path.read_text()) == "val/cat/leak.png"
    assert capsys.readouterr().err == (
        f"wrote 1 key to {path}\n"
        "left out the keys of 4 examples of label conflicts, since nothing shows which label is right; "
        "--keys-of conflict lists them all: correct their labels with 'tfshards relabel' or remove the wrong "
        "ones, then audit again\n"
    )
    assert main(["audit", str(out), "--keys", str(path), "--keys-of", "conflict"]) == 0
    assert [json.loads(line) for line in path.read_text().splitlines()] == conflict
    assert capsys.readouterr().err == f"wrote 4 keys to {path}\n"


def test_odd_sizes_are_reported_with_their_keys(dataset):
    sizes = {"thin": (400, 40), "tiny": (20, 20), "huge": (900, 900)}
    files = {f"train/cat/{name}.png": encoded(picture(70, size)) for name, size in sizes.items()}
    made = audit(dataset(files), distance=None)
    assert found(made) == [
        ("size", "images with a side below 32 pixels: 1", [("train/cat/tiny.png", "", "20 x 20 pixels")]),
        (
            "size",
            "images with one side more than 5 times the other: 1",
            [("train/cat/thin.png", "", "400 x 40 pixels")],
        ),
        (
            "size",
            "images with less than 1/16 of the median number of pixels: 1",
            [("train/cat/tiny.png", "", "20 x 20 pixels")],
        ),
        (
            "size",
            "images with more than 16 times the median number of pixels: 1",
            [("train/cat/huge.png", "", "900 x 900 pixels")],
        ),
    ]


def test_missing_rare_and_uneven_classes_are_reported(tmp_path, quiet_build):
    labels = np.repeat([0, 1, 2], [300, 12, 3])
    quiet_build(Arrays({"x": np.arange(315.0), "label": labels}), tmp_path / "out")
    assert found(audit(tmp_path / "out")) == [
        ("class", "classes with fewer than 10 examples in 'train': 1", [("", "", "2: 3")]),
        (
            "class",
            "'train' has more than 20 times as many examples of one class as of another",
            [("", "", "2: 3"), ("", "", "0: 300")],
        ),
    ]


def test_classes_missing_from_one_split_or_from_all_are_reported(dataset):
    bird = {f"train/bird/{number}.png": encoded(picture(300 + number)) for number in range(10)}
    made = audit(dataset({**bird, "train/eel/": b""}, ["bird", "cat", "dog", "eel"]))
    assert found(made) == [
        ("class", "classes without examples in any split: 1", [("", "", "eel")]),
        ("class", "classes of other splits that are missing in 'val': 1", [("", "", "bird")]),
    ]


def test_arrays_are_compared_by_all_values_except_key_and_label(tmp_path, quiet_build):
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    x[41] = x[40]
    quiet_build(Arrays({"x": x, "label": np.arange(60) % 2}), tmp_path / "out", shards=3)
    made = audit(tmp_path / "out")
    assert [(finding.kind, finding.message) for finding in made.findings] == [
        (
            "duplicate",
            "examples of 'train' that repeat another one of it: 1 of 60 (1 the same, 0 nearly the same)",
        ),
        ("conflict", "examples that also occur with another label: 1 (1 the same, 0 nearly the same)"),
    ]
    assert made.notes == ("no images: only examples with equal x were searched, not near-duplicates",)
    (case,) = made.findings[0].instances
    assert case.example
    assert case.like
    assert {case.example.key, case.like.key} == {"40", "41"}


def test_images_that_cannot_be_decoded_are_reported_and_the_others_audited(dataset):
    out = dataset({"val/cat/copy.png": encoded(picture(0))})
    damaged = encoded(picture(2))
    for shard in read_manifest(out).shards:
        records = [
            d.replace(damaged, b"\x1b" * len(damaged)) for _, d in read_records(out / shard.path, "none")
        ]
        (out / shard.path).write_bytes(b"".join(part for data in records for part in frame(data)))
    for distance in (32, None):
        made = audit(out, distance=distance)
        assert [finding.kind for finding in made.findings] == ["leak"]
        assert made.notes[-1].startswith(
            "images that cannot be decoded: 1; the first, train/cat/2.png: starts with 1b 1b"
        )


def test_the_first_of_several_images_is_audited_and_records_need_no_key(tmp_path):
    schema = Schema((Feature("left", "image", "uint8", IMAGE), Feature("right", "image", "uint8", IMAGE)))
    pairs = [(picture(0), picture(1)), (picture(2), picture(1)), (picture(0), picture(3))]
    encode = example_encoder(schema)
    data = b"".join(part for a, b in pairs for part in frame(b"".join(encode([encoded(a), encoded(b)]))))
    path = "pairs-train-5eed0001.tfrecord-00000-of-00001"
    (tmp_path / path).write_bytes(data)
    split = Split((scan_shard(tmp_path, path, "none")[0],))
    write_manifest(Manifest("pairs", "5eed0001", schema, {"train": split}, Totals(3, 3)), tmp_path)
    made = audit(tmp_path)
    assert audit_text(made).splitlines() == [
        "duplicate: images of 'train' that repeat another one of it: 1 of 3 (1 the same, 0 nearly the same)",
        f"    record 2 of {path} (train) = record 0 of {path} (train): the same",
        "note: of the image features only 'left' was examined",
        "note: no labels: classes and conflicts were not examined",
    ]
    with raises(InputError, "audit-no-keys"):
        made.keys()


def cut(out: Path, path: Path) -> None:
    path.write_bytes(b"")


def flip(out: Path, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def want_more(out: Path, path: Path) -> None:
    document = json.loads((out / "dataset.json").read_text())
    document["schema"]["features"].append({"name": "more", "kind": "int", "dtype": "int64", "shape": []})
    (out / "dataset.json").write_text(with_digest(json.dumps(document)))


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (cut, InputError, "0 records"),
        (flip, RecordError, r"record \d+ at byte \d+: the checksum .* does not match"),
        (want_more, RecordError, "record 0 at byte 0: the feature 'more' is missing"),
    ],
)
def test_damage_is_named(damage, error, message, dataset):
    out = dataset({})
    damage(out, out / read_manifest(out).shards[0].path)
    with pytest.raises(error, match=message):
        audit(out)


@pytest.mark.parametrize("distance", [32, None])
def test_a_dataset_without_examples_has_no_findings(distance, tmp_path):
    path = "none-train-5eed0001.tfrecord-00000-of-00001"
    (tmp_path / path).write_bytes(b"")
    schema = Schema((Feature("image", "image", "uint8", IMAGE),))
    split = Split((scan_shard(tmp_path, path, "none")[0],))
    write_manifest(Manifest("none", "5eed0001", schema, {"train": split}, Totals(0, 0)), tmp_path)
    assert audit(tmp_path, distance=distance).findings == ()


def test_without_imagehash_bytes_are_compared_and_the_remedy_is_printed(dataset):
    out = dataset({"val/cat/copy.png": encoded(picture(0))})
    code = f"""
import sys
sys.modules["imagehash"] = None
from tfshards.prep.cli.main import main
from tfshards.prep.records.example import example_encoder
from tfshards.schemas.files import bytes_digest
print(main(["audit", {str(out)!r}]), main(["audit", {str(out)!r}, "--distance", "none", "--fail-on", "leak"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "tfshards: finding near-duplicate images requires imagehash: pip install 'tfshards[audit]'" in (
        done.stderr
    )
    assert done.stdout.startswith("leak: ")
    assert done.stdout.splitlines()[-1] == "1 1"


def random_hashes(number: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, (number, 4), dtype=np.uint64)


def with_flipped(hashes: np.ndarray, coarse: int, fine: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    bits = np.unpackbits(hashes.view(np.uint8)).reshape(len(hashes), 256)
    for row in bits:
        row[random.choice(64, coarse, replace=False)] ^= 1
        row[64 + random.choice(192, fine, replace=False)] ^= 1
    return np.packbits(bits, axis=1).view(np.uint64)


@pytest.mark.parametrize("distance", [0, 3, 8, 17, 32, 48])
def test_all_near_pairs_are_found_once_and_no_others(distance):
    base = random_hashes(150)
    coarse = distance // 4
    near = with_flipped(base[:50], coarse, distance - coarse, 1)
    too_coarse = with_flipped(base[50:100], coarse + 1, 0, 2)
    too_far = with_flipped(base[100:], 0, distance + 1, 3)
    hashes = np.unique(np.concatenate([base, near, too_coarse, too_far]), axis=0)
    made = near_pairs(hashes, distance)
    bits = np.bitwise_count(hashes[:, None] ^ hashes[None])
    wanted = np.triu((bits.sum(2) <= distance) & (bits[:, :, 0] <= coarse), 1)
    pairs = {tuple(sorted(pair)) for pair in zip(made.first.tolist(), made.second.tolist(), strict=True)}
    assert pairs == set(zip(*(axis.tolist() for axis in wanted.nonzero()), strict=True))
    assert len(pairs) == len(made.first) == (50 if distance else 0)
    assert set(made.distance.tolist()) == ({distance} if distance else set())
    assert made.is_complete


@pytest.mark.parametrize("limit", ["_MAX_CANDIDATES", "_MAX_PAIRS"])
def test_a_search_that_takes_too_long_is_cut_short_and_reported(limit, dataset, monkeypatch):
    hashes = np.unique(with_flipped(np.repeat(random_hashes(1), 300, axis=0), 3, 5, 1), axis=0)
    assert near_pairs(hashes, 32).is_complete
    monkeypatch.setattr(similar, limit, 1000)
    cut = near_pairs(hashes, 32)
    assert not cut.is_complete
    assert 0 < len(cut.first) < 300 * 299 // 2
    monkeypatch.setattr(similar, limit, -1)
    made = audit(dataset({"val/cat/near.jpg": encoded(picture(0), "JPEG")}))
    assert made.notes == (
        "too many images are similar: the search for near-duplicates ended early, some may be missing",
    )


@pytest.mark.parametrize("seed", range(5))
def test_duplicates_equal_those_of_an_exhaustive_search(seed):
    """Assert that an example has a partner if and only if an earlier one, or one of its group, is similar."""
    seen = random_survey(seed)
    made = repeats.find_repeats(seen, 32)
    for place in range(len(seen.keys)):
        others = [other for other in range(place) if is_like(seen, place, other)]
        leaks = [other for other in others if seen.split[other] != seen.split[place]]
        doubles = [other for other in others if seen.split[other] == seen.split[place]]
        assert (made.leaks.partner[place] >= 0) == bool(leaks)
        assert (made.duplicates.partner[place] >= 0) == bool(doubles)
        for partners, allowed in ((made.leaks, leaks), (made.duplicates, doubles)):
            assert partners.partner[place] in [-1, *allowed]
        conflict = made.conflicts.partner[place]
        assert conflict == -1 or (conflict in others and seen.label[conflict] != seen.label[place])


def is_like(seen, one: int, other: int) -> bool:
    if seen.digest[one] == seen.digest[other]:
        return True
    if not (seen.is_hashed[one] and seen.is_hashed[other]):
        return False
    bits = np.bitwise_count(seen.hashes[one] ^ seen.hashes[other])
    return bool(bits.sum() <= 32 and bits[0] <= 8)


def random_survey(seed: int) -> Survey:
    random = np.random.default_rng(seed)
    number = 120
    kinds = random_hashes(12, seed)
    hashes = with_flipped(kinds[random.integers(0, 12, number)], 3, 5, seed)
    # some share their hash with another, and some of these also their bytes
    same = random.integers(0, number, (30, 2))
    hashes[same[:, 0]] = hashes[same[:, 1]]
    _, groups = np.unique(hashes, axis=0, return_inverse=True)
    contents = groups.reshape(-1) * 2 + random.integers(0, 2, number)
    return Survey(
        splits=("a", "b", "c"),
        keys=[str(place) for place in range(number)],
        split=np.sort(random.integers(0, 3, number)),
        label=random.integers(0, 3, number),
        digest=np.frombuffer(b"".join(int(value).to_bytes(16, "big") for value in contents), "V16"),
        size=np.zeros((number, 2), np.int64),
        num_bytes=np.zeros(number, np.int64),
        hashes=hashes,
        is_hashed=random.random(number) < 0.9,
        num_flat=0,
        faults={},
    )


def test_the_command_prints_findings_and_fails_on_those_given_by_fail_on(dataset, capsys):
    # a hostile key is printed without control characters
    out = str(dataset({"val/cat/\x1b[2J\n\udce9.png": usual_file(0)}))
    assert main(["audit", out]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "leak: images of 'val' that are also in 'train': 1 of 21 (1 the same, 0 nearly the same)",
        r"    val/cat/\x1b[2J\n\udce9.png (val, cat) = train/cat/0.png (train, cat): the same",
        "class  train  val",
        "cat       12   11",
        "dog       12   10",
    ]
    assert shown.err == ""
    assert main(["audit", out, "--fail-on", "duplicate", "--fail-on", "size"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["audit", out, "--fail-on", "size", "--fail-on", "leak", "--distance", "none"]) == 1
    assert capsys.readouterr().err == "failed: 1 finding of kind 'leak' (--fail-on)\n"
    assert main(["audit", out, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["num_examples"] == {"train": 24, "val": 21}
    (leak,) = document["findings"]
    assert (leak["kind"], leak["count"]) == ("leak", 1)
    (case,) = leak["instances"]
    assert case["detail"] == "the same"
    assert case["like"] == {"split": "train", "key": "train/cat/0.png", "label": "cat"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--distance", "49"], "--distance 49 must be from 0 to 48 (of 256 bits; at more, most pairs "),
        (["--distance", "-1"], "--distance -1 must be a number of bits, or none"),
        (["--distance", "٣"], "must be a number of bits, or none"),
        (["--fail-on", "leaks"], "invalid choice: 'leaks'"),
    ],
)
def test_wrong_arguments_of_the_command_exit_with_2(arguments, message, tmp_path, capsys):
    assert main(["audit", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err
