"""Image options: each has an effect, changes the build id, and is refused if invalid."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from tfshards.prep import ImageFolder, ImageOptions, Options
from tfshards.prep.cli import main as cli
from tfshards.prep.imaging.options import Resize, parse_resize
from tfshards.prep.verification.show import find
from tfshards.schemas import OptionsError, read_manifest


def encoded(pixels: np.ndarray, name: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, name, **options)
    return file.getvalue()


NOISE = np.random.default_rng(0).integers(0, 256, (40, 60, 4), dtype=np.uint8)
RGB, GRAY = NOISE[..., :3], NOISE[..., 0]


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(RGB, "JPEG", exif=exif)


def animated() -> bytes:
    return encoded(GRAY, "GIF", save_all=True, append_images=[Image.fromarray(GRAY // n) for n in (2, 3)])


FILES = {
    "alpha.png": encoded(NOISE),
    "animated.gif": animated(),
    "grey.png": encoded(GRAY),
    "plain.png": encoded(RGB),
    "progressive.jpg": encoded(RGB, "JPEG", progressive=True),
    "turned.jpg": turned(),
    "bitmap.bmp": encoded(RGB, "BMP"),
    "small.png": encoded(RGB[:5, :5]),
}


@pytest.fixture
def photos(image_folder) -> Path:
    return image_folder(FILES)


def stored(out: Path, key: str) -> Image.Image | str:
    """Return the image with this key, or the reason of its rejection."""
    rejects = (line for path in out.glob("rejected-*.jsonl") for line in path.read_text().splitlines())
    if any(f'"key": "{key}"' in line for line in rejects):
        return "rejected"
    return Image.open(io.BytesIO(find(out, key).values["image"][0]))


def shape(out: Path, key: str) -> tuple[str, str, tuple[int, int]] | str:
    image = stored(out, key)
    return image if isinstance(image, str) else (image.format, image.mode, image.size)


WIDE, HIGH = (60, 40), (40, 60)
# Arguments of the command line, their fields in the manifest, and the stored result of one file.
OPTIONS = {
    "nothing": ([], {}, "turned.jpg", ("PNG", "RGB", HIGH)),
    "check header": (["--check=header"], {"check": "header"}, "plain.png", ("PNG", "RGB", WIDE)),
    "check none": (["--check=none"], {"check": "none"}, "alpha.png", ("PNG", "RGBA", WIDE)),
    "check none, of small files": (
        ["--check=none", "--max-bytes=6kB"],
        {"check": "none", "max_bytes": 6000},
        "alpha.png",
        "rejected",
    ),
    "not rotated": (["--orientation=keep"], {"orientation": "keep"}, "turned.jpg", ("JPEG", "RGB", WIDE)),
    "grey": (["--channels=1"], {"channels": 1}, "plain.png", ("PNG", "L", WIDE)),
    "with alpha": (["--channels=4"], {"channels": 4}, "alpha.png", ("PNG", "RGBA", WIDE)),
    "as many channels as there are": (
        ["--channels=keep"],
        {"channels": "keep"},
        "grey.png",
        ("PNG", "L", WIDE),
    ),
    "alpha kept": (
        ["--channels=keep", "--alpha=keep"],
        {"channels": "keep", "alpha": "keep"},
        "alpha.png",
        ("PNG", "RGBA", WIDE),
    ),
    "alpha forgotten": (["--alpha=drop"], {"alpha": "drop"}, "alpha.png", ("PNG", "RGB", WIDE)),
    "alpha over white": (
        ["--channels=keep", "--alpha=white"],
        {"channels": "keep", "alpha": "white"},
        "alpha.png",
        ("PNG", "RGB", WIDE),
    ),
    "the first frame": (["--animation=first"], {"animation": "first"}, "animated.gif", ("PNG", "L", WIDE)),
    "the first of not too many frames": (
        ["--animation=first", "--max-frames=2"],
        {"animation": "first", "max_frames": 2},
        "animated.gif",
        "rejected",
    ),
    "the shorter side": (
        ["--resize=short=20"],
        {"resize": "short=20"},
        "plain.png",
        ("PNG", "RGB", (30, 20)),
    ),
    "the longer side": (["--resize=long=30"], {"resize": "long=30"}, "plain.png", ("PNG", "RGB", (30, 20))),
    "height and width": (["--resize=30x50"], {"resize": "30x50"}, "plain.png", ("PNG", "RGB", (50, 30))),
    "JPEG": (["--format=jpeg"], {"format": "jpeg"}, "plain.png", ("JPEG", "RGB", WIDE)),
    "PNG": (["--format=png"], {"format": "png"}, "progressive.jpg", ("PNG", "RGB", WIDE)),
    "WebP": (["--format=webp"], {"format": "webp"}, "plain.png", ("WEBP", "RGB", WIDE)),
    "JPEG instead of PNG": (["--jpeg-quality=80"], {"jpeg_quality": 80}, "bitmap.bmp", ("JPEG", "RGB", WIDE)),
    "few pixels": (["--max-pixels=2399"], {"max_pixels": 2399}, "plain.png", "rejected"),
    "just enough pixels": (["--max-pixels=2400"], {"max_pixels": 2400}, "plain.png", ("PNG", "RGB", WIDE)),
    "few bytes": (["--max-bytes=6kB"], {"max_bytes": 6000}, "plain.png", "rejected"),
    "few scans": (["--max-scans=2"], {"max_scans": 2}, "progressive.jpg", "rejected"),
}


@pytest.fixture(scope="module")
def build_ids() -> dict[str, str]:
    return {}


@pytest.mark.parametrize(("words", "fields", "key", "expected"), OPTIONS.values(), ids=OPTIONS.keys())
def test_each_option_has_its_effect_and_changes_the_build_id(
    words, fields, key, expected, photos, tmp_path, build_ids
):
    out = tmp_path / "out"
    command = ["build", "images", str(photos), str(out), "--max-rejected=100%", *words]
    assert cli.main(command) == 0
    assert shape(out, key) == expected
    manifest = read_manifest(out)
    assert manifest.options.items() >= ImageOptions(**fields).to_json().items()
    # all of these options give different builds, unless they stand for the same values
    resolved = str(ImageOptions(**fields).to_json())
    assert build_ids.setdefault(resolved, manifest.build_id) == manifest.build_id
    assert len({*build_ids.values()}) == len(build_ids)


def test_a_default_given_explicitly_changes_nothing(photos, tmp_path):
    defaults = [
        "--check=decode",
        "--orientation=apply",
        "--channels=3",
        "--animation=reject",
        "--format=keep",
    ]
    defaults += ["--max-pixels=89000000", "--max-bytes=1GiB", "--max-frames=10000", "--max-scans=100"]
    defaults += ["--duplicates=keep"]
    for name, words in (("1", []), ("2", defaults)):
        out = str(tmp_path / name / "out")
        assert cli.main(["build", "images", str(photos), out, "--max-rejected=100%", *words]) == 0
    assert read_manifest(tmp_path / "1" / "out") == read_manifest(tmp_path / "2" / "out")


def test_the_same_quality_gives_the_same_pixels_and_a_lower_one_fewer_bytes(photos, tmp_path):
    sizes = []
    for quality in (20, 90):
        out = tmp_path / str(quality)
        words = ["--max-rejected=100%", "--format=jpeg", f"--jpeg-quality={quality}", "--name=n"]
        assert cli.main(["build", "images", str(photos), str(out), *words]) == 0
        sizes.append(len(find(out, "plain.png").values["image"][0]))
    assert sizes[0] < sizes[1] / 2


WRONG = {
    "no such depth": (["--depth=12"], "--depth 12 must be one of 8, 16, keep"),
    "no such channels": (["--channels=2"], "argument --channels: invalid choice: '2'"),
    "no such check": (["--check=all"], "argument --check: invalid choice: 'all'"),
    "no such orientation": (["--orientation=up"], "argument --orientation: invalid choice: 'up'"),
    "no such alpha": (["--alpha=black"], "argument --alpha: invalid choice: 'black'"),
    "no such animation": (["--animation=all"], "argument --animation: invalid choice: 'all'"),
    "no such format": (["--format=gif"], "argument --format: invalid choice: 'gif'"),
    "a size of one side": (
        ["--resize=256"],
        "--resize 256 must be short=PIXELS, long=PIXELS or HEIGHTxWIDTH,",
    ),
    "no pixels": (["--resize=short=0"], "--resize short=0 must be short=PIXELS"),
    "a side without pixels": (["--resize=10x0"], "--resize 10x0 must be short=PIXELS"),
    "zeros": (["--resize=00x10"], "--resize 00x10 must be"),
    "a side that is too long to write": (["--resize=1234567x1"], "--resize 1234567x1 must be"),
    "a side that JPEG has not": (
        ["--resize=1x65501", "--format=jpeg"],
        "--resize 1x65501 exceeds the longest side of a jpeg image, 65500",
    ),
    "a side that WebP has not": (
        ["--resize=16384x1", "--format=webp"],
        "exceeds the longest side of a webp image, 16383",
    ),
    "more pixels than are allowed": (
        ["--resize=100x100", "--max-pixels=9999"],
        "--resize 100x100 has more pixels than --max-pixels 9999",
    ),
    "no quality": (["--jpeg-quality=0"], "--jpeg-quality 0 must be an integer from 1 to 100"),
    "too good": (["--jpeg-quality=101"], "--jpeg-quality 101 must be an integer from 1 to 100"),
    "a word for a quality": (["--jpeg-quality=best"], "--jpeg-quality best must be an integer"),
    "no limit of pixels": (["--max-pixels=0"], "--max-pixels 0 must be an integer of at least 1"),
    "no limit of bytes": (["--max-bytes=0"], "--max-bytes 0 must be an integer of at least 1"),
    "a limit of bytes without a unit": (["--max-bytes=1X"], "--max-bytes 1X must be a size such as 128MiB"),
    "no limit of frames": (["--max-frames=0"], "--max-frames 0 must be an integer of at least 1"),
    "no limit of scans": (["--max-scans=-1"], "--max-scans -1 must be an integer of at least 1"),
    "frames where one is all": (["--max-frames=5"], "--max-frames requires --animation first"),
    "alpha in three channels": (["--alpha=keep"], "--alpha keep requires --channels 4 or --channels keep"),
    "alpha in JPEG": (["--format=jpeg", "--channels=4"], "--format jpeg has no alpha channel: choose png"),
    "perhaps alpha in JPEG": (["--format=jpeg", "--channels=keep"], "--format jpeg has no alpha channel"),
    "the quality of PNG": (
        ["--format=png", "--jpeg-quality=90"],
        "--jpeg-quality and --format png exclude each other: nothing is written as JPEG",
    ),
    "the quality of WebP": (
        ["--format=webp", "--jpeg-quality=90"],
        "--jpeg-quality and --format webp exclude",
    ),
    "the quality of four channels": (
        ["--channels=4", "--jpeg-quality=9"],
        "--jpeg-quality and --channels 4 exclude",
    ),
    "WebP in grey": (["--format=webp", "--channels=1"], "--format webp requires --channels 3"),
    **{
        f"unchecked, and {word}": (
            ["--check=none", word],
            f"--check none stores the bytes unchanged: leave out {word.partition('=')[0]}",
        )
        for word in (
            "--orientation=keep",
            "--channels=1",
            "--alpha=drop",
            "--animation=first",
            "--resize=short=9",
            "--format=png",
            "--jpeg-quality=9",
            "--max-pixels=9",
            "--max-scans=9",
        )
    },
}


@pytest.mark.parametrize(("words", "message"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("verb", ["build", "plan"])
def test_invalid_options_are_reported_in_one_line_before_anything_is_read(
    verb, words, message, tmp_path, capsys
):
    assert cli.main([verb, "images", str(tmp_path / "gone"), str(tmp_path / "out"), *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.startswith("tfshards")
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


FROM_PYTHON = {
    "True for 1": ({"channels": True}, r"^channels=True must be one of 1, 3, 4, keep$"),
    "a float": ({"channels": 3.0}, r"^channels=3\.0 must be one of 1, 3, 4, keep$"),
    "no word for alpha": ({"alpha": ""}, r"^alpha='' must be one of white, drop, keep$"),
    "a pair for a size": ({"resize": (224, 224)}, r"^resize=\(224, 224\) must be text, such as 'short=256'"),
    "True for a quality": (
        {"jpeg_quality": True},
        r"^jpeg_quality=True must be an integer from 1 to 100$",
    ),
    "True for a limit": ({"max_pixels": True}, r"^max_pixels=True must be an integer of at least 1$"),
    "a mask of three channels": (
        {"mask": True},
        r"^mask=True requires channels=1 and format='png', without jpeg_quality=$",
    ),
    "a mask as JPEG": (
        {"mask": True, "channels": 1, "format": "jpeg"},
        r"^mask=True requires channels=1 and",
    ),
}


@pytest.mark.parametrize(("options", "message"), FROM_PYTHON.values(), ids=FROM_PYTHON.keys())
def test_invalid_options_are_reported_from_python_too(options, message):
    with pytest.raises(OptionsError, match=message):
        ImageOptions(**options)


SIZES = {
    "the shorter side of a wide one": ("short=20", (60, 40), (30, 20)),
    "the shorter side of a high one": ("short=20", (40, 60), (20, 30)),
    "the longer side": ("long=30", (40, 60), (20, 30)),
    "smaller ones stay": ("short=50", (60, 40), (60, 40)),
    "no side vanishes": ("long=10", (1000, 3), (10, 1)),
    "height comes first": ("10x20", (60, 40), (20, 10)),
    "exact sizes also grow": ("100x100", (6, 4), (100, 100)),
}


@pytest.mark.parametrize(("text", "before", "after"), SIZES.values(), ids=SIZES.keys())
def test_the_target_size_follows_from_the_text(text, before, after):
    assert parse_resize(text).size(*before) == after


def test_a_text_is_parsed_into_one_of_three_sizes():
    assert parse_resize("short=256") == Resize(short=256)
    assert parse_resize("long=1024") == Resize(long=1024)
    assert parse_resize("224x112") == Resize(exact=(224, 112))


def test_the_schema_holds_the_dimensions_that_all_images_share():
    assert ImageOptions().shape == (None, None, 3)
    assert ImageOptions(resize="10x20", channels=1).shape == (10, 20, 1)
    assert ImageOptions(resize="short=9", channels="keep").shape == (None, None, None)


def test_conversions_are_counted_without_rejects_and_duplicates(image_folder, tmp_path, quiet_build):
    # of 24 bitmaps the last six repeat the first six; and four files are not images
    pixels = np.random.default_rng(1).integers(0, 256, (18, 4, 4, 3), dtype=np.uint8)
    files = {f"{n:02}.bmp": encoded(pixels[n % 18], "BMP") for n in range(24)}
    root = image_folder({**files, **{f"{n:02}-bad.bmp": b"" for n in range(4)}, "z.png": 1})
    options = Options(max_rejected=1, duplicates="drop")
    manifest = quiet_build(ImageFolder(root), tmp_path / "out", shards=5, options=options)
    assert manifest.totals.accepted == 19
    assert set(manifest.totals.conversions.values()) == {18}
    assert manifest.totals.reasons["rejected"] == {"duplicate": 6, "empty": 4}


def test_what_conversions_lose_is_in_the_summary_with_the_option_that_keeps_it(
    image_folder, tmp_path, capsys
):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    root = image_folder(
        {
            "alpha.png": encoded(NOISE),
            "moving.gif": animated(),
            "profile.png": encoded(RGB, icc_profile=profile),
        }
    )
    out = str(tmp_path / "out")
    assert cli.main(["build", "images", str(root), out, "--animation", "first"]) == 0
    text = capsys.readouterr()
    assert (
        "warning: 1 image with transparency: drawn over white, such as 'alpha.png'; --alpha keep and "
        "--channels 4 store it, --alpha drop leaves the colors as they are\n"
    ) in text.err
    assert [line for line in text.out.splitlines() if "accepted:" in line and "(" in line] == [
        "  accepted: alpha over white: 1 (--alpha keep and --channels 4 store it, --alpha drop leaves the "
        "colors as they are)",
        "  accepted: color profile ignored: 1 (no option applies it: convert images that are not sRGB "
        "before the build)",
        "  accepted: first frame: 1 (no option stores the others: extract them before the build)",
    ]
    options = ["--animation", "first", "--alpha", "keep", "--channels", "4", "--overwrite"]
    assert cli.main(["build", "images", str(root), out, *options]) == 0
    text = capsys.readouterr()
    assert "warning" not in text.err
    assert "alpha" not in text.out
