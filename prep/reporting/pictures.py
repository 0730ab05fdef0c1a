"""Thumbnails as a page embeds them, and the contact sheet."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from tfshards.prep.imaging.pillow import Image, ImageDraw, ImageFont, PngInfo
from tfshards.prep.reporting.glimpse import Glimpse
from tfshards.schemas import Manifest
from tfshards.schemas.summary import escaped

# Thumbnails of a page: photos of 96 pixels have about 2 KB each as text in the page.
_MOST_PICTURES = 4_000
_FEWEST, _MOST = 2, 16
_SIDES = {400: 160, 1_600: 128, _MOST_PICTURES: 96}


@dataclass(frozen=True)
class Shown:
    """An example or an input as a page shows it.

    Attributes:
        name: its key, in which characters that are not printable are escaped.
        place: split and number, such as ``train:5``; empty for an input.
        split: its split; empty for an input.
        uri: the thumbnail as a ``data:`` URI; empty if there is none.
        width: width of the thumbnail in pixels.
        height: height of the thumbnail in pixels.
        caption: further text.
        fault: why there is no thumbnail.
    """

    name: str
    place: str = ""
    split: str = ""
    uri: str = ""
    width: int = 0
    height: int = 0
    caption: str = ""
    fault: str = ""


def shown(seen: Glimpse, caption: str = "") -> Shown:
    """Return an example as a page shows it."""
    return Shown(
        escaped(seen.key),
        f"{escaped(seen.split)}:{seen.number}",
        escaped(seen.split),
        picture_uri(seen.picture) if seen.picture else "",
        *seen.size,
        caption=caption,
        fault=escaped(seen.fault or ""),
    )


def picture_uri(picture: bytes) -> str:
    """Return a WebP file as a ``data:`` URI."""
    return f"data:image/webp;base64,{base64.b64encode(picture).decode('ascii')}"


def label_name(manifest: Manifest, label: int | None) -> str:
    """Return the name of a class, or its number where classes have no names; escaped."""
    if label is None:
        return ""
    names = manifest.schema.class_names
    if not names:
        return str(label)
    return "no class" if label < 0 else escaped(names[label])


def pictures_per_group(num_groups: int) -> int:
    """Return the number of thumbnails of each class on a contact sheet."""
    return max(_FEWEST, min(_MOST, _MOST_PICTURES // max(1, num_groups)))


def most_groups() -> int:
    """Return the largest number of classes on a contact sheet."""
    return _MOST_PICTURES // _FEWEST


def side_of(num_pictures: int) -> int:
    """Return the side in pixels of the square that each of so many thumbnails fits."""
    return next((side for most, side in _SIDES.items() if num_pictures <= most), min(_SIDES.values()))


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
