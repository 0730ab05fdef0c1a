"""Findings of an audit: equal and similar images, label conflicts, rare classes, odd sizes."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter

from tests.pictures import image_file as encoded
from tests.prep.exported import write_dataset
from tests.surface.command import run, run_json
from tfshards.prep import Arrays, ImageFolder, audit
from tfshards.prep.auditing import similar
from tfshards.schemas import Feature, Schema


def picture(number: int, size: tuple[int, int] = (160, 120)) -> Image.Image:
    """Return a picture of soft blobs, different for each number."""
    coarse = np.random.default_rng(number).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


@cache
def usual_file(number: int) -> bytes:
    """Return the PNG of a picture."""
    return encoded(picture(number))


IMAGE = Feature("image", "image", "uint8", (None, None, 3))
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


def found(made) -> list[tuple[str, list[str]]]:
    """Return the kind of each finding, and the keys of its examples, or its details without an example."""
    return [
        (finding.kind, [case.example.key if case.example else case.detail for case in finding.cases])
        for finding in made.findings
    ]


def numbers(finding) -> list[int]:
    """Return how many of how many examples are the same, and nearly the same."""
    return [int(word.strip("(,:")) for word in finding.message.split() if word.strip("(,:").isdecimal()]


def test_duplicates_in_a_split_keep_the_largest_of_them(dataset):
    # the position of a file depends on its name
    again = {f"train/cat/{name}.png": usual_file(0) for name in ("again", "more")}
    poor = {f"train/dog/poor{number}.jpg": encoded(picture(number), "JPEG", quality=40) for number in (1, 3)}
    small = {f"train/cat/s{number}.png": encoded(picture(number).resize((80, 60))) for number in (0, 2, 4)}
    made = audit(dataset({**again, **poor, **small}))
    (finding,) = made.findings
    assert (finding.kind, numbers(finding)) == ("duplicate", [7, 31, 2, 5])
    assert {*poor, *small} < {*made.keys()}


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
    (leak,) = [finding for finding in audit(dataset(copies)).findings if finding.kind == "leak"]
    assert numbers(leak) == [10, 24, 0, 10]
    originals = [f"train/{('cat', 'dog')[place % 2]}/{place}.png" for place in range(len(NEAR))]
    pairs = {case.example.key: case.like.key for case in leak.cases}
    assert pairs == dict(zip(originals, copies, strict=True))


def test_the_keys_of_all_equal_examples_but_one_are_listed(image_folder, tmp_path, quiet_build):
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
    path = tmp_path / "keys"
    assert run(["audit", str(tmp_path / "out"), "--distance", "none", "--keys", str(path)]).status == 0
    assert [json.loads(line) for line in path.read_text().splitlines()] == listed


def test_no_key_of_a_conflict_is_listed(dataset, tmp_path):
    contested = {
        "train/dog/wrong.png": usual_file(0),
        "val/cat/again.png": usual_file(0),
        "val/cat/near.jpg": encoded(picture(0), "JPEG", quality=40),
    }
    out = dataset({**contested, "val/cat/leak.png": usual_file(2)})
    made = audit(out)
    assert made.keys() == ["val/cat/leak.png"]
    ended = run(["audit", str(out), "--keys", str(tmp_path / "keys")])
    assert json.loads((tmp_path / "keys").read_text()) == "val/cat/leak.png"
    assert "conflicts" in ended.err


def test_odd_sizes_are_reported_with_their_keys(dataset):
    sizes = {"thin": (400, 40), "tiny": (20, 20), "huge": (900, 900)}
    files = {f"train/cat/{name}.png": encoded(picture(70, size)) for name, size in sizes.items()}
    assert found(audit(dataset(files), distance=None)) == [
        ("size", [f"train/cat/{name}.png"]) for name in ("tiny", "thin", "tiny", "huge")
    ]


def test_missing_rare_and_uneven_classes_are_reported(tmp_path, quiet_build, dataset):
    labels = np.repeat([0, 1, 2], [300, 12, 3])
    quiet_build(Arrays({"x": np.arange(315.0), "label": labels}), tmp_path / "rare")
    assert found(audit(tmp_path / "rare")) == [("class", ["2: 3"]), ("class", ["2: 3", "0: 300"])]
    bird = {f"train/bird/{number}.png": encoded(picture(300 + number)) for number in range(10)}
    made = audit(dataset({**bird, "train/eel/": b""}, ["bird", "cat", "dog", "eel"]))
    assert found(made) == [("class", ["eel"]), ("class", ["bird"])]


def test_arrays_are_compared_by_all_values_except_key_and_label(tmp_path, quiet_build):
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    x[41] = x[40]
    quiet_build(Arrays({"x": x, "label": np.arange(60) % 2}), tmp_path / "out", shards=3)
    made = audit(tmp_path / "out")
    assert [finding.kind for finding in made.findings] == ["duplicate", "conflict"]
    assert len(made.notes) == 1
    (case,) = made.findings[0].cases
    assert {case.example.key, case.like.key} == {"40", "41"}


def test_images_that_cannot_be_decoded_are_reported_and_the_others_audited(tmp_path):
    schema = Schema((IMAGE, Feature("key", "bytes", "bytes")))
    files = [b"junk", usual_file(1), usual_file(2), usual_file(1)]
    rows = [{"image": file, "key": b"%d" % number} for number, file in enumerate(files)]
    write_dataset(tmp_path, schema, {"train": [rows[:3]], "val": [rows[3:]]})
    for distance in (32, None):
        made = audit(tmp_path, distance=distance)
        assert [finding.kind for finding in made.findings] == ["leak"]
    assert any("0: starts with 6a 75 6e 6b" in note for note in audit(tmp_path).notes)


def test_the_hash_is_the_one_of_imagehash():
    y, x = np.mgrid[:64, :64]
    pixels = ((x * x * 3 + y * 7 + x * y) // 9 % 256).astype(np.uint8)
    hashed = similar.perceptual_hash(pixels)
    # of phash in ImageHash 4.3.2, the coarsest bits first
    assert hashed.tolist() == [
        161191421127034753,
        14302559603579361731,
        16891432503022605653,
        14657620628722046293,
    ]
    mirrored = similar.perceptual_hash(pixels[:, ::-1])
    assert np.bitwise_count(hashed ^ mirrored).sum() > similar.MAX_DISTANCE


@pytest.mark.parametrize("distance", [0, 17, 48])
def test_all_near_pairs_are_found_once_and_no_others(distance):
    random, coarse = np.random.default_rng(distance), distance // 4

    def flipped(hashes, first, others):
        bits = np.unpackbits(hashes.view(np.uint8)).reshape(len(hashes), 256)
        for row in bits:
            row[random.choice(64, first, replace=False)] ^= 1
            row[64 + random.choice(192, others, replace=False)] ^= 1
        return np.packbits(bits, axis=1).view(np.uint64)

    base = random.integers(0, 1 << 64, (150, 4), dtype=np.uint64)
    near = flipped(base[:50], coarse, distance - coarse)
    far = [flipped(base[50:100], coarse + 1, 0), flipped(base[100:], 0, distance + 1)]
    hashes = np.unique(np.concatenate([base, near, *far]), axis=0)
    made, is_complete = similar.near_pairs(hashes, distance)
    bits = np.bitwise_count(hashes[:, None] ^ hashes[None])
    wanted = np.triu((bits.sum(2) <= distance) & (bits[:, :, 0] <= coarse), 1)
    pairs = {tuple(sorted(pair)) for pair in made[:, :2].tolist()}
    assert pairs == set(zip(*(axis.tolist() for axis in wanted.nonzero()), strict=True))
    assert len(pairs) == len(made) == (50 if distance else 0)
    assert is_complete


def test_the_command_prints_findings(dataset):
    # a hostile key is printed without control characters
    out = str(dataset({"val/cat/\x1b[2J\n\udce9.png": usual_file(0)}))
    ended = run(["audit", out])
    assert (ended.status, ended.err) == (0, "")
    assert r"val/cat/\x1b[2J\n\udce9.png (val, cat) = train/cat/0.png (train, cat)" in ended.out
    ended, document = run_json(["audit", out])
    assert ended.status == 0
    (leak,) = document["findings"]
    assert leak["cases"][0]["like"] == {
        "split": "train",
        "key": "train/cat/0.png",
        "label": "cat",
        "number": leak["cases"][0]["like"]["number"],
    }
