"""Thumbnails as a page embeds them, and how many of which size fit it."""

from __future__ import annotations

import base64
from dataclasses import dataclass

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
