"""Draw the contact sheet of a dataset as one picture."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from tfshards.prep.imaging.pillow import Image, ImageDraw, ImageFont, PngInfo
from tfshards.prep.reporting.glimpse import Glimpse
from tfshards.prep.reporting.pictures import side_of

_SOFTWARE = "tfshards"
_GAP, _LINE = 4, 20
_BACKGROUND, _TEXT = (255, 255, 255), (28, 32, 38)


def contact_sheet(chosen: Mapping[str, Sequence[int]], seen: Mapping[int, Glimpse]) -> bytes:
    """Return a PNG with the examples of each class in a row below its name.

    Args:
        chosen: rows by name of the class.
        seen: the examples, by row.
    """
    most = max((len(rows) for rows in chosen.values()), default=0)
    number = sum(map(len, chosen.values()))
    side = side_of(number) if number <= 1_600 else 64
    wide, high = most * (side + _GAP) + 3 * _GAP, side + _LINE + 3 * _GAP
    # as many rows next to each other as make the picture about as wide as it is high
    across = max(1, round(math.sqrt(len(chosen) * high / wide)))
    sheet = Image.new("RGB", (across * wide, -(-len(chosen) // across) * high), _BACKGROUND)
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(13)
    for place, (name, rows) in enumerate(chosen.items()):
        left, top = (place % across) * wide + 2 * _GAP, (place // across) * high + _GAP
        pen.text((left, top), _fitting(name, pen, font, wide - 3 * _GAP), fill=_TEXT, font=font)
        for column, row in enumerate(rows):
            picture = seen[row].picture
            if picture is None:
                continue
            with Image.open(io.BytesIO(picture), formats=("WEBP",)) as image:
                image.thumbnail((side, side))
                x = left + column * (side + _GAP) + (side - image.width) // 2
                sheet.paste(image, (x, top + _LINE + (side - image.height) // 2))
    file, note = io.BytesIO(), PngInfo()
    note.add_text("Software", _SOFTWARE)
    sheet.save(file, "PNG", compress_level=6, pnginfo=note)
    return file.getvalue()


def is_sheet(file: BinaryIO) -> bool:
    """Return whether a file begins as a contact sheet does."""
    # the signature, the header, and the text
    return f"tEXtSoftware\0{_SOFTWARE}".encode("ascii") in file.read(8 + 25 + 100)


def _fitting(
    name: str, pen: ImageDraw.ImageDraw, font: ImageFont.ImageFont | ImageFont.FreeTypeFont, width: int
) -> str:
    """Return a name, cut to fit a width in pixels."""
    while len(name) > 1 and pen.textlength(name, font=font) > width:
        name = f"{name[: max(1, len(name) * 4 // 5 - 1)]}…"
    return name
