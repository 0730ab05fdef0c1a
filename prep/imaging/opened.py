"""The attributes of an opened image by which it is accepted or kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Opened(Protocol):
    """Attributes of a ``PIL.Image.Image`` whose pixels are not decoded yet."""

    @property
    def format(self) -> str | None:
        """Pillow's name of the format."""

    @property
    def info(self) -> Mapping[str | tuple[int, int], object]:
        """Further metadata of the file."""

    @property
    def mode(self) -> str:
        """Pillow's name of the pixel format."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
