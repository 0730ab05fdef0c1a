"""Each file of the corpus in a real build: kept, converted or rejected, and shown alike by three decoders.

``python -m tests.pixels.test_corpus`` writes golden.json again: digests of what a build stores of each file.
If they change, builds of unchanged inputs would write other bytes under the same build id. If that is
intended, the number of the conversion, which manifests record, must be raised.
"""

import hashlib
import io
import json
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image, features

from tests.pixels.corpus.shown import TensorFlow
from tests.tables import mostly_nightly
from tfshards import loader, prep
from tfshards.schemas import Manifest

from .corpus.files import KINDS, file_name
from .corpus.kind import Kind
from .corpus.shown import difference, shown

GOLDEN = Path(__file__).parent / "golden.json"
BY_KEY = {file_name(name): kind for name, kind in KINDS.items()}
# a key per kind of file, or the later one would replace the earlier one in the folder
assert len(BY_KEY) == len(KINDS)

# options of builds whose pixels are compared exactly
EXACT: dict[str, dict[str, object]] = {
    "default": {},
    "gray": {"channels": 1},
    "rgba": {"channels": 4},
    "first": {"animation": "first"},
    "png": {"format": "png"},
    "first in gray": {"channels": 1, "animation": "first"},
}
RESIZED: dict[str, dict[str, object]] = {"short": {"resize": "short=16"}, "exact": {"resize": "20x30"}}
# options of builds whose bytes alone are compared
ONLY_BYTES: dict[str, dict[str, object]] = {
    "jpeg": {"format": "jpeg"},
    "quality": {"jpeg_quality": 60},
    "long": {"resize": "long=20"},
    "16 bits": {"depth": 16},
}
VARIANTS = EXACT | RESIZED | ONLY_BYTES
# gray and color, with and without alpha
OFTEN = ["default", "rgba"]

# of the packages with which golden.json was written
CODECS = ("libjpeg_turbo", "zlib", "webp", "avif", "jpg_2000", "libtiff")
VERSIONS = [PIL.__version__, *map(features.version, CODECS)]


@dataclass(frozen=True)
class Built:
    """A dataset: its manifest, the stored bytes by key, and the reasons of rejections by key."""

    path: Path
    manifest: Manifest
    stored: dict[str, bytes]
    reasons: dict[str, str]


def build(files: dict[str, bytes], folder: Path, **options: object) -> Built:
    """Build a dataset of one folder of files."""
    source, out = folder / "files", folder / "data"
    source.mkdir(parents=True)
    for name, data in files.items():
        (source / name).write_bytes(data)
        os.utime(source / name, ns=(10**18, 10**18))
    manifest = prep.build(
        prep.ImageFolder(source, images=prep.ImageOptions(**options)),
        out,
        shards=2,
        options=prep.Options(max_rejected=1),
    )
    stored = {}
    for batch in loader.batches(out, batch_size=16, select=("key", "image"), remainder="keep"):
        stored |= {key.decode(): image for key, image in zip(*batch, strict=True)}
    rejects = [line for path in out.rglob("rejected*.jsonl") for line in path.read_text().splitlines()]
    reasons = {line["key"]: line["reason"] for line in map(json.loads, rejects)}
    return Built(out, manifest, stored, reasons)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a function that builds the corpus under the options of a variant, once."""
    made: dict[str, Built] = {}

    def make(variant: str) -> Built:
        if variant not in made:
            files = {key: kind.data for key, kind in BY_KEY.items()}
            made[variant] = build(files, tmp_path_factory.mktemp("corpus"), **VARIANTS[variant])
        return made[variant]

    return make


@pytest.fixture(scope="module")
def tensorflow(programs, tmp_path_factory):
    return TensorFlow(tmp_path_factory.mktemp("decoded"), programs)


def accepted(**options: object) -> dict[str, Kind]:
    """Return the files that a build under these options accepts, by key."""
    names = ("kept", "converted", *(("animated",) if options.get("animation") == "first" else ()))
    return {key: kind for key, kind in BY_KEY.items() if kind.outcome in names}


def test_every_file_is_kept_converted_skipped_or_rejected_for_its_reason(built):
    found = built("default")
    counts = Counter(kind.outcome for kind in BY_KEY.values())
    totals = found.manifest.totals
    assert (totals.entries, totals.skipped) == (len(BY_KEY), counts["skipped"])
    assert totals.accepted == counts["kept"] + counts["converted"] == len(found.stored)
    assert totals.rejected == len(BY_KEY) - totals.accepted - totals.skipped
    wanted = {
        key: kind.outcome
        for key, kind in BY_KEY.items()
        if kind.outcome not in ("kept", "converted", "skipped")
    }
    assert found.reasons == wanted
    assert found.stored.keys() == accepted().keys()
    kept = [key for key, kind in BY_KEY.items() if kind.outcome == "kept"]
    assert [key for key in kept if found.stored[key] != BY_KEY[key].data] == []
    converted = [key for key, kind in BY_KEY.items() if kind.outcome == "converted"]
    assert [key for key in converted if found.stored[key] == BY_KEY[key].data] == []
    assert totals.conversions == Counter(name for kind in BY_KEY.values() for name in kind.conversions)


def test_what_a_build_stores_is_kept_by_the_next_one(built, tmp_path):
    stored = built("default").stored
    # under a suffix that fits all: a build knows files by their content
    again = build({f"{key}.png": data for key, data in stored.items()}, tmp_path)
    assert again.stored == {f"{key}.png": data for key, data in stored.items()}
    assert {*again.manifest.totals.conversions} <= {"color profile ignored"}


@pytest.mark.parametrize("variant", mostly_nightly(EXACT, OFTEN))
def test_three_decoders_show_the_picture_of_each_file(variant, built, tensorflow):
    options = EXACT[variant]
    found = built(variant)
    assert found.stored.keys() == accepted(**options).keys()
    channels = options.get("channels", 3)
    numpy = {}
    image = loader.Image(channels=channels)
    one = {"batch_size": 1, "select": ("key", "image")}
    for batch in loader.batches(found.path, image=image, map_fn=_as_it_is, **one):
        numpy[batch["key"][0].decode()] = batch["image"][0]
    pixels = dict(zip(found.stored, tensorflow.decode([*found.stored.values()], channels), strict=True))
    wrong = {}
    for key, encoded in found.stored.items():
        whole = shown(BY_KEY[key], **options)
        wanted = whole[..., :channels]
        for name, decoded in (("TensorFlow", pixels[key]), ("NumPy", numpy[key])):
            if fault := difference(decoded, wanted):
                wrong[f"{key} by {name}"] = fault
        with Image.open(io.BytesIO(encoded)) as opened:
            assert options.get("format", "keep") in ("keep", opened.format.lower())
    assert not wrong, "\n".join(f"{key} {fault}" for key, fault in wrong.items())


def _as_it_is(example, seed):
    """Return an example unchanged: images of different sizes are delivered only after a function."""
    return example


@pytest.mark.parametrize("variant", RESIZED)
def test_resized_images_are_close_to_those_of_pillow(variant, built):
    found = built(variant)
    assert found.stored.keys() == accepted().keys()
    wrong = []
    for key, encoded in found.stored.items():
        whole = Image.fromarray(shown(BY_KEY[key]))
        size = (30, 20) if variant == "exact" else shorter(whole.size, 16)
        wanted = np.asarray(whole.resize(size, Image.Resampling.LANCZOS))
        with Image.open(io.BytesIO(encoded)) as opened:
            pixels = np.asarray(opened.convert("RGB"))
        assert pixels.shape == wanted.shape, key
        mean = np.abs(pixels.astype(int) - wanted).mean()
        # damaged blocks have different pixels at a smaller scale
        if mean >= (11 if BY_KEY[key].data.startswith(b"\xff\xd8") else 3):
            wrong.append(f"{key}: {mean:.1f}")
    assert not wrong, "\n".join(wrong)


def shorter(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Return width and height with a shorter side of at most ``side``, and the same aspect ratio."""
    if min(size) <= side:
        return size
    wide, high = size
    return (side, round(high * side / wide)) if wide <= high else (round(wide * side / high), side)


@pytest.mark.parametrize("variant", mostly_nightly(VARIANTS, [*OFTEN, "exact"]))
def test_the_stored_bytes_are_those_of_golden_json(variant, built):
    golden = json.loads(GOLDEN.read_text())
    if golden["versions"] != VERSIONS:
        pytest.skip(f"golden.json is of other codecs: {golden['versions']}, not {VERSIONS}")
    found = built(variant)
    assert (digest(found), found.manifest.options["conversion"]) == (
        golden["digests"][variant],
        golden["conversion"],
    )


def digest(found: Built) -> str:
    """Return a digest of what became of each file: the stored bytes, or the reason of its rejection."""
    made = {key: reason.encode() for key, reason in found.reasons.items()} | found.stored
    total = hashlib.sha256()
    for key in sorted(made):
        # HEIC is read by an optional package
        if not key.startswith("HEIC"):
            total.update(hashlib.sha256(key.encode() + b"\0" + made[key]).digest())
    return total.hexdigest()[:16]


if __name__ == "__main__":
    files = {key: kind.data for key, kind in BY_KEY.items()}
    digests = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, options in VARIANTS.items():
            last = build(files, Path(folder) / name, **options)
            digests[name] = digest(last)
    conversion = last.manifest.options["conversion"]
    golden = {"conversion": conversion, "versions": VERSIONS, "digests": digests}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
