"""Every nasty file in a real build and the loader, each in a separate process that must not crash."""

import io
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.pixels.corpus.files import KINDS, file_name
from tests.pixels.corpus.kind import Kind
from tests.pixels.corpus.shown import difference, shown
from tests.tables import mostly_nightly
from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.options import ImageOptions, parse_resize
from tfshards.prep.imaging.whitelist import ImageError

CHILDREN = Path(__file__).parent / "nasty"
BY_KEY = {file_name(name): kind for name, kind in KINDS.items()}

# The options of each build, and the channels in which the loader reads it.
VARIANTS: dict[str, tuple[dict[str, object], int]] = {
    "default": ({}, 3),
    "grey": ({"channels": 1}, 1),
    "rgba": ({"channels": 4}, 4),
    "drop": ({"alpha": "drop"}, 3),
    "first": ({"animation": "first"}, 3),
    "any": ({"channels": "keep", "alpha": "white"}, 3),
    "any-alpha": ({"channels": "keep"}, 3),
    "png": ({"format": "png"}, 3),
    "jpeg": ({"format": "jpeg"}, 3),
    "short": ({"resize": "short=16"}, 3),
    "exact": ({"resize": "20x30"}, 3),
    "grey-first": ({"channels": 1, "animation": "first"}, 1),
}
# gray and color, with and without alpha, and animations
OFTEN = ["any-alpha"]
EXACT = [name for name in VARIANTS if name not in ("jpeg", "short", "exact")]


def outcomes(**options: object) -> dict[str, Kind]:
    """Return the kinds that are accepted under these options, by key."""
    names = ("kept", "converted", *(("animated",) if options.get("animation") == "first" else ()))
    accepted = {key: kind for key, kind in BY_KEY.items() if kind.outcome in names}
    if options.get("format") == "jpeg":
        accepted = {key: kind for key, kind in accepted.items() if max(shown(kind).shape) <= 65_500}
    return accepted


class Delivered:
    """The output of the loader for one dataset."""

    def __init__(self, out: Path) -> None:
        self.keys = json.loads(Path(f"{out}.keys").read_text())
        with np.load(f"{out}.encoded.npz") as encoded:
            self.encoded = [encoded[f"arr_{index}"].tobytes() for index in range(len(self.keys))]
        with np.load(f"{out}.pixels.npz") as pixels:
            self.pixels = [pixels[f"arr_{index}"] for index in range(len(self.keys))]


@pytest.fixture(scope="module")
def built(programs, tmp_path_factory):
    """Return a function that builds and reads the dataset of a variant once; no process may crash."""
    folder, outs = tmp_path_factory.mktemp("nasty") / "files", tmp_path_factory.mktemp("built")
    folder.mkdir()
    for key, kind in BY_KEY.items():
        (folder / key).write_bytes(kind.data)
        os.utime(folder / key, ns=(10**18, 10**18))

    def build(variant: str) -> Path:
        out, (options, channels) = outs / variant, VARIANTS[variant]
        if not out.exists():
            command = [CHILDREN / "build_and_read.py", folder, out, json.dumps(options), channels]
            ended = programs.run(command, timeout=300)
            # a signal would be negative
            assert ended.returncode == 0, f"ended with {ended.returncode}:\n{ended.stderr[-3000:]}"
        return out

    return build


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.outcome != "skipped"])
def test_a_nasty_file_is_kept_converted_or_rejected_as_it_should_be(name):
    kind = KINDS[name]
    suffix = kind.suffix.lower().encode()
    if kind.outcome not in ("kept", "converted"):
        with pytest.raises(ImageError) as found:
            normalize(kind.data, ImageOptions(), suffix)
        assert found.value.reason == kind.outcome, found.value.detail
        assert found.value.detail.isprintable()
        return
    made = normalize(kind.data, ImageOptions(), suffix)
    assert (made.data is kind.data) == (kind.outcome == "kept")
    assert made.conversions == kind.conversions
    if kind.outcome == "converted":
        assert normalize(made.data, ImageOptions()).data is made.data


@pytest.mark.processes
@pytest.mark.parametrize("variant", mostly_nightly(EXACT, OFTEN))
def test_the_loader_delivers_the_pixels_of_pillow(built, variant):
    options, channels = VARIANTS[variant]
    delivered = Delivered(built(variant))
    assert set(delivered.keys) == set(outcomes(**options))
    wrong = {}
    for key, encoded, pixels in zip(delivered.keys, delivered.encoded, delivered.pixels, strict=True):
        wanted = shown(BY_KEY[key], **options)
        fault = difference(pixels, wanted[..., :channels])
        if fault:
            wrong[key] = fault
        assert_stored(encoded, wanted, BY_KEY[key], options)
    assert not wrong, "\n".join(f"{key} {fault}" for key, fault in wrong.items())


def assert_stored(encoded: bytes, wanted: np.ndarray, kind: Kind, options: dict[str, object]) -> None:
    """Assert that the stored bytes have the requested format and alpha."""
    with Image.open(io.BytesIO(encoded)) as image:
        asked = str(options.get("format", "keep")).upper()
        assert asked in ("KEEP", image.format)
        if options.get("channels") == "keep":
            assert (image.mode == "RGBA") == (wanted.shape[2] == 4)
            assert image.mode != "RGBA" or np.array_equal(np.asarray(image), wanted)
    if not options and kind.outcome == "kept":
        assert encoded == kind.data


def test_a_build_counts_every_file_and_every_conversion(built):
    totals = json.loads((built("default") / "dataset.json").read_text())["totals"]
    counts = Counter(kind.outcome for kind in KINDS.values())
    assert totals["entries"] == len(KINDS)
    assert totals["accepted"] == counts["kept"] + counts["converted"]
    assert totals["skipped"] == counts["skipped"]
    assert totals["accepted"] + totals["rejected"] + counts["skipped"] == len(KINDS)
    conversions = Counter(name for kind in KINDS.values() for name in kind.conversions)
    assert totals["conversions"] == conversions


def test_each_rejected_file_is_in_the_rejects_file_with_its_reason(built):
    (path,) = built("default").glob("rejected-*.jsonl")
    rejects = {line["key"]: line["reason"] for line in map(json.loads, path.read_text().splitlines())}
    assert rejects == {
        k: kind.outcome for k, kind in BY_KEY.items() if kind.outcome not in ("kept", "converted", "skipped")
    }


@pytest.mark.parametrize("variant", mostly_nightly(["short", "exact"], []))
def test_resized_images_are_close_to_those_of_pillow(built, variant):
    options, _ = VARIANTS[variant]
    resize = parse_resize(str(options["resize"]))
    delivered = Delivered(built(variant))
    assert set(delivered.keys) == set(outcomes())
    wrong = []
    for key, pixels in zip(delivered.keys, delivered.pixels, strict=True):
        whole = shown(BY_KEY[key])
        size = resize.size(whole.shape[1], whole.shape[0])
        wanted = np.asarray(Image.fromarray(whole).resize(size, Image.Resampling.LANCZOS))
        assert pixels.shape == wanted.shape, key
        mean = np.abs(pixels.astype(int) - wanted).mean()
        # damaged blocks have different pixels at a smaller scale
        if mean >= (11 if BY_KEY[key].data.startswith(b"\xff\xd8") else 3):
            wrong.append(f"{key}: {mean:.1f}")
    assert not wrong, "\n".join(wrong)
