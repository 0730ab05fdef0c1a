"""Names of masks that a template such as ``{folders}/{stem:-_image}_mask.png`` makes from paths of images."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.keys import to_bytes
from tfshards.schemas import OptionsError

FOLDERS, STEM = "folders", "stem"


@dataclass(frozen=True)
class MaskName:
    """A template of the path of a mask in the folder of masks.

    Attributes:
        parts: texts of the template, each with the field after it: ``folders`` (of the image, in the folder
            of the images), ``stem`` (its name without the suffix), or none after the last one.
        ending: what is taken off the end of the stem.
        suffix: suffix of the masks, as the template ends with it.
    """

    parts: tuple[tuple[bytes, str], ...]
    ending: bytes
    suffix: bytes

    def path(self, image: bytes) -> bytes | None:
        """Return the path of the mask of an image without the suffix; None if its stem has another ending."""
        folders, name = os.path.split(image)
        stem = os.path.splitext(name)[0]
        if not stem.endswith(self.ending):
            return None
        values = {FOLDERS: folders, STEM: stem.removesuffix(self.ending), "": b""}
        path = b"".join(text + values[field] for text, field in self.parts)
        # an image may be in no folder
        return re.sub(rb"/+", b"/", path).lstrip(b"/")

    def is_of(self, path: bytes) -> bool:
        """Return whether a file in the folder of masks ends like a mask; others belong to no image."""
        return path.endswith(self.parts[-1][0] + self.suffix)


@lru_cache(maxsize=8)
def parse_mask_name(template: str) -> MaskName:
    """Return the template in a text, or raise OptionsError."""

    def fault(why: str) -> OptionsError:
        return OptionsError("mask-name-form", template=template, why=why)

    parts: list[tuple[bytes, str]] = []
    ending = ""
    try:
        parsed = [*Formatter().parse(template)]
    except ValueError as error:
        raise fault(str(error)) from None
    for text, field, spec, conversion in parsed:
        if field not in (FOLDERS, STEM, None) or conversion:
            raise fault("its fields are {folders}, {stem} and {stem:-ENDING}")
        if spec and (field != STEM or not spec.startswith("-")):
            raise fault("only {stem:-ENDING} takes an ending off")
        ending = spec[1:] if spec else ending
        parts.append((to_bytes(text), field or ""))
    if [field for _, field in parts].count(STEM) != 1:
        raise fault("it must have {stem} once")
    last, field = parts[-1]
    # with a letter before it, since a name that begins with a dot has no suffix
    head, suffix = os.path.splitext(b"x" + last)
    if field or suffix.lower() not in SUFFIXES:
        raise fault("it must end with the suffix of the masks, such as .png")
    shape = template.replace("{" + FOLDERS + "}", "x")
    if shape.startswith("/") or ".." in shape.split("/"):
        raise fault("it must stay in the folder of the masks")
    return MaskName((*parts[:-1], (head[1:], "")), to_bytes(ending), suffix)
