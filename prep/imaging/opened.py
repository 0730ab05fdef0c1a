"""The part of an opened image that the rules for accepting and keeping it look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Opened(Protocol):
    """The attributes of a ``PIL.Image.Image`` whose pixels are not decoded yet."""

    @property
    def format(self) -> str | None:
        """Pillow's name of the format."""

    @property
    def info(self) -> Mapping[str | tuple[int, int], object]:
        """What else is in the file."""

    @property
    def mode(self) -> str:
        """Pillow's name for the kind of pixels."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
