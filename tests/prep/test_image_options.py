"""Image options: each has an effect, changes the build id, and is refused if invalid."""

import io
from dataclasses import fields as fields_of

import numpy as np
import pytest
from PIL import Image, ImageCms

from tests.errors import raises
from tests.pictures import image_file as encoded
from tfshards.prep import ImageFolder, ImageOptions, Options
from tfshards.prep.cli import main as cli
from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.options import parse_resize
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.schemas import InputError, OptionsError, read_manifest

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


WIDE, HIGH = (60, 40), (40, 60)
# Options, a file, and the format, mode and size that is stored, or the reason of its rejection.
OPTIONS = [
    ({}, "turned.jpg", ("PNG", "RGB", HIGH)),
    ({"check": "none"}, "alpha.png", ("PNG", "RGBA", WIDE)),
    ({"channels": 1}, "plain.png", ("PNG", "L", WIDE)),
    ({"channels": 4}, "alpha.png", ("PNG", "RGBA", WIDE)),
    ({"channels": "keep"}, "grey.png", ("PNG", "L", WIDE)),
    ({"channels": "keep", "alpha": "keep"}, "alpha.png", ("PNG", "RGBA", WIDE)),
    ({"alpha": "drop"}, "alpha.png", ("PNG", "RGB", WIDE)),
    ({"channels": "keep", "alpha": "white"}, "alpha.png", ("PNG", "RGB", WIDE)),
    ({"animation": "first"}, "animated.gif", ("PNG", "L", WIDE)),
    ({"resize": "short=20"}, "plain.png", ("PNG", "RGB", (30, 20))),
    ({"resize": "long=30"}, "plain.png", ("PNG", "RGB", (30, 20))),
    ({"resize": "30x50"}, "plain.png", ("PNG", "RGB", (50, 30))),
    ({"format": "jpeg"}, "plain.png", ("JPEG", "RGB", WIDE)),
    ({"format": "png"}, "progressive.jpg", ("PNG", "RGB", WIDE)),
    ({"format": "pixels"}, "progressive.jpg", ("PPM", "RGB", WIDE)),
    ({"format": "pixels", "channels": 1}, "plain.png", ("PPM", "L", WIDE)),
    ({"jpeg_quality": 80}, "bitmap.bmp", ("JPEG", "RGB", WIDE)),
    ({"max_pixels": 2399}, "plain.png", "too large"),
    ({"max_pixels": 2400}, "plain.png", ("PNG", "RGB", WIDE)),
]


@pytest.mark.parametrize(("fields", "key", "expected"), OPTIONS, ids=[str(row[0]) for row in OPTIONS])
def test_each_option_has_its_effect(fields, key, expected):
    if isinstance(expected, str):
        with pytest.raises(ImageError, match=expected):
            normalize(FILES[key], ImageOptions(**fields))
        return
    with Image.open(io.BytesIO(normalize(FILES[key], ImageOptions(**fields)).data)) as image:
        assert (image.format, image.mode, image.size) == expected


def test_every_option_is_a_flag_and_changes_the_build_id(image_folder, tmp_path):
    """The flag of the limit of bytes stands for all, which are derived from the fields."""
    photos, ids = image_folder(FILES), set()
    for number, words in enumerate((["--check=none"], ["--check=none", "--max-bytes=6kB"], [])):
        out = tmp_path / str(number)
        command = ["build", "images", str(photos), str(out), "--max-rejected=100%", "--name=n", *words]
        assert cli.main(command) == 0
        manifest = read_manifest(out)
        ids.add(manifest.build_id)
        rejects = "".join(path.read_text() for path in out.glob("rejected-*.jsonl"))
        assert ('"key": "plain.png"' in rejects) == ("--max-bytes=6kB" in words)
    assert len(ids) == 3
    assert manifest.options.items() >= ImageOptions().to_json().items()


def test_another_default_of_the_program_is_another_build(image_folder, tmp_path, monkeypatch, quiet_build):
    source, out = ImageFolder(image_folder(FILES), ImageOptions(resize="4x4")), tmp_path / "out"
    rejects = Options(max_rejected=1)
    quiet_build(source, out, options=rejects)
    monkeypatch.setattr("tfshards.prep.imaging.options.JPEG_QUALITY", 60)
    with raises(InputError, "dataset-differs", distinction="with other options (quality)"):
        quiet_build(source, out, options=rejects)


def test_a_default_given_explicitly_changes_nothing(image_folder, tmp_path):
    photos, outs = image_folder(FILES), (tmp_path / "1" / "out", tmp_path / "2" / "out")
    defaults = {field.name: field.default for field in fields_of(ImageOptions) if field.name != "mask"}
    # a flag is false unless it is given
    given = {name: value for name, value in defaults.items() if value not in (None, False)}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    for out, more in zip(outs, ([], [*words, "--duplicates=keep"]), strict=True):
        assert cli.main(["build", "images", str(photos), str(out), "--max-rejected=100%", *more]) == 0
    assert read_manifest(outs[0]) == read_manifest(outs[1])


def test_a_lower_quality_gives_fewer_bytes():
    low, high = (
        normalize(FILES["plain.png"], ImageOptions(format="jpeg", jpeg_quality=quality)).data
        for quality in (20, 90)
    )
    assert len(low) < len(high) / 2


def test_for_training_stands_for_three_options(image_folder, tmp_path):
    wanted = ImageOptions(resize="short=258", format="jpeg", jpeg_quality=90)
    assert ImageOptions(for_training=224) == ImageOptions(for_training=224, format="jpeg") == wanted
    assert ImageOptions(for_training=32, jpeg_quality=80).quality == 80
    as_pixels = ImageOptions(for_training=224, format="pixels")
    assert as_pixels == ImageOptions(resize="short=258", format="pixels")
    photos, outs = image_folder(FILES), (tmp_path / "1" / "out", tmp_path / "2" / "out")
    options = (["--for-training", "20"], ["--resize", "short=23", "--format", "jpeg", "--jpeg-quality", "90"])
    for out, words in zip(outs, options, strict=True):
        assert cli.main(["build", "images", str(photos), str(out), "--max-rejected=100%", *words]) == 0
    assert read_manifest(outs[0]) == read_manifest(outs[1])


WRONG = [
    ("not-a-choice", {"depth": 12}),
    ("not-a-choice", {"channels": 2}),
    ("not-a-choice", {"channels": True}),
    ("not-a-choice", {"channels": 3.0}),
    ("not-a-choice", {"check": "header"}),
    ("not-a-choice", {"alpha": ""}),
    ("not-a-choice", {"animation": "all"}),
    ("not-a-choice", {"format": "webp"}),
    ("resize-type", {"resize": (224, 224)}),
    *(("resize-form", {"resize": text}) for text in ("256", "short=0", "10x0", "00x10", "1234567x1")),
    ("resize-side", {"resize": "1x65501", "format": "jpeg"}),
    ("resize-pixels", {"resize": "100x100", "max_pixels": 9999}),
    *(("jpeg-quality-range", {"jpeg_quality": value}) for value in (0, 101, "best", True)),
    *(("limit-range", {f"max_{name}": 0}) for name in ("pixels", "bytes")),
    ("limit-range", {"max_pixels": True}),
    ("alpha-keep-channels", {"alpha": "keep"}),
    *(("format-has-no-alpha", {"format": "jpeg", "channels": channels}) for channels in (4, "keep")),
    *(("for-training-range", {"for_training": side}) for side in (0, -224, True, 224.0, 65_501)),
    ("jpeg-quality-range", {"for_training": 224, "jpeg_quality": 0}),
    ("for-training-excludes", {"for_training": 224, "resize": "short=256"}),
    ("for-training-excludes", {"for_training": 224, "format": "png"}),
    ("format-has-no-alpha", {"for_training": 224, "channels": 4}),
    ("format-has-no-alpha", {"format": "pixels", "alpha": "keep", "channels": 4}),
    ("jpeg-quality-excluded", {"format": "pixels", "jpeg_quality": 90}),
    ("jpeg-quality-excluded", {"for_training": 9, "format": "pixels", "jpeg_quality": 90}),
    ("depth-format", {"depth": 16, "format": "pixels"}),
    ("resize-side", {"resize": "1x100000", "format": "pixels"}),
    ("jpeg-quality-excluded", {"format": "png", "jpeg_quality": 90}),
    ("jpeg-quality-excluded", {"channels": 4, "jpeg_quality": 9}),
    ("depth-format", {"depth": 16, "format": "jpeg"}),
    ("depth-format", {"depth": "keep", "jpeg_quality": 90}),
    ("mask-format", {"mask": True}),
    ("mask-format", {"mask": True, "channels": 1, "format": "jpeg"}),
    *(
        ("check-none-excludes", {"check": "none", **more})
        for more in (
            {"channels": 1},
            {"depth": 16},
            {"alpha": "drop"},
            {"animation": "first"},
            {"resize": "short=9"},
            {"format": "png"},
            {"jpeg_quality": 9},
            {"max_pixels": 9},
        )
    ),
]


@pytest.mark.parametrize(("code", "fields"), WRONG, ids=[str(row[1]) for row in WRONG])
def test_invalid_options_are_refused(code, fields):
    with raises(OptionsError, code):
        ImageOptions(**fields)


@pytest.mark.parametrize("verb", ["build", "plan"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--depth=12"], "--depth 12 must be one of 8, 16, keep"),
        (["--depth=float32"], "--depth float32 is for tensors"),
        (["--channels=2"], "argument --channels: invalid choice: '2'"),
        (["--max-bytes=1X"], "--max-bytes 1X must be a size such as 128MiB"),
        (["--check=none", "--alpha=drop"], "--check none stores the bytes unchanged: leave out --alpha"),
    ],
)
def test_invalid_options_are_reported_in_one_line_before_reading(words, message, verb, tmp_path, capsys):
    assert cli.main([verb, "images", str(tmp_path / "gone"), str(tmp_path / "out"), *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.startswith("tfshards")
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


SIZES = {
    "the shorter side of a wide one": ("short=20", (60, 40), (30, 20)),
    "the shorter side of a high one": ("short=20", (40, 60), (20, 30)),
    "the longer side": ("long=30", (40, 60), (20, 30)),
    "smaller ones stay": ("short=50", (60, 40), (60, 40)),
    "no side vanishes": ("long=10", (1000, 3), (10, 1)),
    "height comes first": ("10x20", (60, 40), (20, 10)),
    "exact sizes also grow": ("100x100", (6, 4), (100, 100)),
}


@pytest.mark.parametrize(("text", "before", "after"), SIZES.values(), ids=SIZES)
def test_the_target_size_follows_from_the_text(text, before, after):
    assert parse_resize(text).size(*before) == after


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


def test_what_conversions_lose_is_in_the_summary_with_options_that_keep_it(image_folder, tmp_path, capsys):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    files = {"alpha.png": encoded(NOISE), "moving.gif": animated()}
    root = image_folder({**files, "profile.png": encoded(RGB, icc_profile=profile)})
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
