"""The bytes of converted images, for many kinds of files and options: the same in every release.

If a test here fails, builds of unchanged inputs would write other bytes under the same build id. If that is
intended, raise CONVERSION in prep/imaging/options.py, and replace the digests: ``python -m
tests.prep.test_conversion`` prints them. The versions of the codecs matter, too; manifests record them.
"""

import hashlib

import PIL
import pytest
from PIL import features

from tests.errors import raises
from tests.pixels.corpus.files import KINDS
from tests.tables import mostly_nightly
from tfshards.prep import ImageFolder
from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.options import CONVERSION, ImageOptions
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.prep.sources.image_file import decoders_of
from tfshards.schemas import InputError

VARIANTS: dict[str, dict[str, object]] = {
    "default": {},
    "grey": {"channels": 1},
    "rgba": {"channels": 4},
    "drop": {"alpha": "drop"},
    "first": {"animation": "first"},
    "any": {"channels": "keep"},
    "png": {"format": "png"},
    "jpeg": {"format": "jpeg"},
    "quality": {"jpeg_quality": 60},
    "short": {"resize": "short=16"},
    "long": {"resize": "long=20"},
    "exact": {"resize": "20x30"},
    "16 bits": {"depth": 16},
    "any depth": {"depth": "keep", "channels": "keep"},
    "mask": {"channels": 1, "mask": True},
    "resized mask": {"channels": 1, "mask": True, "resize": "20x30"},
}
OFTEN = ["default", "any", "exact"]
CODECS = ("libjpeg_turbo", "zlib", "webp", "avif", "jpg_2000", "libtiff")
VERSIONS = [PIL.__version__, *map(features.version, CODECS)]

GOLDEN_CONVERSION = 3
GOLDEN_VERSIONS = ["12.3.0", "3.1.4.1", "1.2.13", "1.6.0", "1.4.2", "2.5.4", "4.7.1"]
GOLDEN = {
    "default": "6649d916cc90d792",
    "grey": "6e48f711e41f2be3",
    "rgba": "13293501f0e406fe",
    "drop": "811dc0f58a46b00f",
    "first": "6880cec0cbfeceb9",
    "any": "3604141c0f509d63",
    "png": "7b8e8bf406eed7e1",
    "jpeg": "6ba4d218c8348bcf",
    "quality": "7fd6b691f142cd13",
    "short": "d016d90897d4c528",
    "long": "e167a51937b2a0c7",
    "exact": "010a57e294abe198",
    "16 bits": "42c06a5f14449381",
    "any depth": "9ea6f4babf11742d",
    "mask": "079353efd7f38117",
    "resized mask": "658fd42b936e2df6",
}


def digest(options: ImageOptions) -> str:
    """Return a digest of what becomes of each file: the stored bytes, or the reason of its rejection."""
    found = hashlib.sha256()
    for name, kind in KINDS.items():
        # whose decoder is optional
        if name.startswith("HEIC"):
            continue
        try:
            made = normalize(kind.data, options, kind.suffix.lower().encode()).data
        except ImageError as error:
            made = error.reason.encode()
        found.update(hashlib.sha256(name.encode() + b"\0" + made).digest())
    return found.hexdigest()[:16]


@pytest.mark.parametrize("name", mostly_nightly(VARIANTS, OFTEN))
def test_the_conversion_of_images_has_not_changed_unless_its_number_has(name):
    options = ImageOptions(**VARIANTS[name])
    if VERSIONS != GOLDEN_VERSIONS:
        pytest.skip(f"the digests are of other codecs: {GOLDEN_VERSIONS}, not {VERSIONS}")
    is_same = digest(options) == GOLDEN[name]
    assert (is_same, CONVERSION) == (True, GOLDEN_CONVERSION), "see the first lines of this file"


def test_every_option_is_recorded_with_its_value():
    recorded = ImageFolder("photos").images.to_json()
    assert recorded == {
        "check": "decode",
        "channels": 3,
        "depth": 8,
        "mask_depth": None,
        "alpha": "white",
        "animation": "reject",
        "resize": None,
        "format": "keep",
        "jpeg_quality": None,
        "max_pixels": 89_000_000,
        "max_bytes": 1 << 30,
        "quality": 95,
    }
    assert {*recorded, "mask", "for_training"} == {*ImageOptions.__dataclass_fields__, "quality"}
    assert ImageOptions(check="none").to_json() == {"check": "none", "max_bytes": 1 << 30}
    assert ImageOptions(channels=4, jpeg_quality=None).to_json()["alpha"] == "keep"
    assert ImageOptions(jpeg_quality=60).to_json()["quality"] == 60


def test_another_default_of_the_program_is_another_build(small_folder, tmp_path, monkeypatch, quiet_build):
    source, out = ImageFolder(small_folder, ImageOptions(resize="4x4")), tmp_path / "out"
    quiet_build(source, out)
    monkeypatch.setattr("tfshards.prep.imaging.options.JPEG_QUALITY", 60)
    with raises(InputError, "dataset-differs", distinction="with other options (quality)"):
        quiet_build(source, out)


def test_the_conversion_is_recorded_wherever_images_are_converted():
    assert decoders_of(ImageOptions())["conversion"] == CONVERSION
    assert decoders_of(ImageOptions(check="none")) == {}
    # masks are converted all the same
    assert decoders_of(ImageOptions(check="none"), has_masks=True)["conversion"] == CONVERSION


if __name__ == "__main__":
    print(f"GOLDEN_VERSIONS = {VERSIONS}")
    print({name: digest(ImageOptions(**options)) for name, options in VARIANTS.items()})
