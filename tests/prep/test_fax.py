"""Fax pages: complete ones are accepted, damaged ones only if no uninitialized memory is visible."""

from __future__ import annotations

import io
import random
import struct

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.whitelist import ImageError

WIDTH, HEIGHT = 203, 150
COMPRESSIONS = ("group3", "group4", "tiff_ccitt")
STRIPS = {"one strip": 1 << 20, "strips": 900}


def page() -> Image.Image:
    """Return black marks on white, like a page with lines of letters."""
    values = np.random.default_rng(0).random((HEIGHT // 10, WIDTH // 5)) < 0.8
    whole = np.ones((HEIGHT, WIDTH), bool)
    marks = np.repeat(np.repeat(values, 10, 0), 5, 1)
    whole[: len(marks), : marks.shape[1]] = marks
    whole[::10] = True
    return Image.fromarray(whole)


def saved(compression: str, strip_size: int, **tags: object) -> bytes:
    encoded = io.BytesIO()
    page().save(encoded, "TIFF", compression=compression, strip_size=strip_size, **tags)
    return encoded.getvalue()


def strip_of(data: bytes, index: int) -> slice:
    """Return the offset of the strip in the file."""
    with Image.open(io.BytesIO(data)) as image:
        assert isinstance(image, TiffImagePlugin.TiffImageFile)
        start, size = image.tag_v2[273][index], image.tag_v2[279][index]
    return slice(start, start + size)


def outcome(data: bytes) -> bytes | str:
    """Return the stored bytes, or the reason of the rejection."""
    # fill memory with another value than the last time
    random_bytes = [bytes([random.randrange(256)]) * random.randrange(1_000, 40_000) for _ in range(20)]
    del random_bytes
    try:
        return normalize(data, ImageOptions(), b".tif").data
    except ImageError as error:
        return f"{error.reason}: {error.detail}"


@pytest.mark.parametrize("strip_size", STRIPS.values(), ids=STRIPS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_complete_page_is_accepted_as_decoded(compression, strip_size):
    stored = normalize(saved(compression, strip_size), ImageOptions(), b".tif")
    with Image.open(io.BytesIO(stored.data)) as image:
        assert image.tobytes() == page().convert("L").tobytes()


def test_a_strip_that_ends_early_is_named():
    data = bytearray(saved("group4", 900))
    strip = strip_of(bytes(data), 1)
    # the end-of-block code, in place of the last half of its rows
    middle = (strip.start + strip.stop) // 2
    data[middle : middle + 6] = bytes.fromhex("001001001001")
    found = outcome(bytes(data))
    assert isinstance(found, str)
    assert found.startswith("damaged: strip 1 of 5 ends before its last row")


@pytest.mark.parametrize("strip_size", STRIPS.values(), ids=STRIPS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_result_for_a_damaged_page_does_not_depend_on_memory(compression, strip_size):
    whole = saved(compression, strip_size)
    chance = random.Random(0)
    strip = strip_of(whole, 0)
    for _ in range(20):
        data = bytearray(whole)
        data[chance.randrange(strip.start, strip.stop)] ^= 1 << chance.randrange(8)
        assert len({outcome(bytes(data)) for _ in range(3)}) == 1


def test_some_damaged_pages_that_pillow_decodes_are_refused():
    whole = saved("group4", 1 << 20)
    chance = random.Random(0)
    strip = strip_of(whole, 0)
    refused = 0
    for _ in range(60):
        data = bytearray(whole)
        data[chance.randrange(strip.start, strip.stop)] ^= 1 << chance.randrange(8)
        with Image.open(io.BytesIO(bytes(data))) as image:
            image.load()
        refused += isinstance(outcome(bytes(data)), str)
    assert refused


def test_tiles_are_refused():
    """libtiff allows no order of tiles in memory in which a blank tile precedes each tile."""
    entries = [(256, 32), (257, 32), (258, 1), (259, 4), (262, 1), (277, 1), (322, 32), (323, 32)]
    entries += [(324, 8), (325, 16)]
    directory = struct.pack("<H", len(entries)) + b"".join(
        struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries
    )
    tiled = struct.pack("<2sHI", b"II", 42, 24) + bytes(16) + directory + bytes(4)
    assert outcome(tiled) == "unsupported: fax-compressed tiles"
