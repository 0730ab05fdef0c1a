"""Kept JPEGs are checked without the parser of Pillow; the results must be the same as with it."""

import random

import pytest

from tests.pixels.corpus.files import KINDS
from tests.pixels.corpus.kind import encoded
from tests.pixels.corpus.modes import GRAY, RGB
from tfshards.prep.imaging import normalize as normalizing
from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.whitelist import ImageError

JPEGS = {name: kind for name, kind in KINDS.items() if kind.data.startswith(b"\xff\xd8\xff")}
OPTIONS = {
    "usual": ImageOptions(),
    "grey": ImageOptions(channels=1),
    "alpha": ImageOptions(channels=4),
    "PNG": ImageOptions(format="png"),
    "few pixels": ImageOptions(max_pixels=100),
    "mask": ImageOptions(mask=True, channels=1, format="png"),
    "small": ImageOptions(resize="long=8"),
    "large": ImageOptions(resize="long=8000"),
}


def outcome(data: bytes, options: ImageOptions, suffix: str) -> object:
    try:
        return normalize(data, options, suffix.encode())
    except ImageError as error:
        return error.reason, error.detail


def with_pillow(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    with monkeypatch.context() as patch:
        patch.setattr(normalizing, "_kept_jpeg", lambda *_: None)
        return outcome(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", JPEGS)
def test_a_jpeg_is_judged_as_by_the_parser_of_pillow(name, monkeypatch):
    kind = JPEGS[name]
    for asked, options in OPTIONS.items():
        arguments = (kind.data, options, kind.suffix)
        assert outcome(*arguments) == with_pillow(monkeypatch, *arguments), asked


@pytest.mark.parametrize(
    "whole",
    [
        encoded(RGB, "JPEG"),
        encoded(GRAY, "JPEG"),
        encoded(RGB, "JPEG", progressive=True),
        encoded(RGB, "JPEG", restart_marker_rows=1, comment=b"a comment"),
    ],
    ids=["color", "grey", "progressive", "restarts"],
)
def test_a_damaged_jpeg_is_judged_as_by_the_parser_of_pillow(whole, monkeypatch):
    chance = random.Random(0)
    for number in range(600):
        data = bytearray(whole)
        # mostly in the header, which contains everything that both parsers inspect
        place = chance.randrange(min(700, len(data)) if number % 3 else len(data))
        if number % 4 == 0:
            del data[place : place + chance.randrange(1, 5)]
        elif number % 4 == 1:
            data[place:place] = chance.randbytes(chance.randrange(1, 5))
        else:
            data[place] = chance.randrange(256)
        arguments = (bytes(data), ImageOptions(), ".jpg")
        assert outcome(*arguments) == with_pillow(monkeypatch, *arguments), data[place - 9 : place + 9].hex()


def test_most_jpegs_do_not_need_the_parser_of_pillow(monkeypatch):
    """Otherwise the tests above would compare the parser of Pillow with itself."""
    monkeypatch.setattr(normalizing.Image, "open", None)
    for data in (encoded(RGB, "JPEG"), encoded(GRAY, "JPEG"), encoded(RGB, "JPEG", progressive=True)):
        assert normalize(data, ImageOptions(), b".jpg").data is data
