"""The roles of features that their values alone do not show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfshards.schemas import Feature, OptionsError
from tfshards.schemas.argument_types import check_strings
from tfshards.schemas.option import option

_LABEL_NAMES = re.compile(r"(?:.*/)?(?:label|class)")
_RAW = re.compile(r"(?P<name>.+)=(?P<dtype>\w+)\[(?P<shape>(?:[0-9]+(?:,[0-9]+)*)?)\]", re.DOTALL)


def parse_raw(texts: Sequence[str]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the tensors in texts such as ``image_raw=uint8[28,28,1]``.

    Raises:
        OptionsError: a text is not of that form, or a name is repeated.
    """
    raw: dict[str, tuple[str, tuple[int, ...]]] = {}
    for text in texts:
        match = _RAW.fullmatch(text)
        if match is None:
            raise OptionsError("raw-form", text=text)
        if match["name"] in raw:
            raise OptionsError("raw-repeated", text=text, match=match["name"])
        shape = tuple(int(number) for number in match["shape"].split(",") if number)
        raw[match["name"]] = match["dtype"], shape
    return raw


@dataclass(frozen=True)
class FeatureRoles:
    """The roles of features that their values alone do not show.

    Attributes:
        label: the feature whose integers are classes; by default the one named ``label`` or ``class``.
        images: features whose byte strings must all be images.
        raw: dtype and shape of each feature that stores tensors as little-endian bytes.
        drop: features that are left out of the schema.

    Raises:
        OptionsError: a feature is named twice, or a dtype or shape is not allowed.
    """

    label: str | None = option(
        None,
        "feature whose integers are classes",
        metavar="FEATURE",
        default_text="label or class, if one of them exists",
    )
    images: tuple[str, ...] = option(
        (),
        "feature whose byte strings must all be images",
        flag="image",
        metavar="FEATURE",
        is_repeatable=True,
        default_text="recognized by value",
    )
    raw: Mapping[str, tuple[str, tuple[int, ...]]] = option(
        {},
        "feature that stores tensors as little-endian bytes, such as image_raw=uint8[28,28,1]",
        metavar="NAME=DTYPE[SHAPE]",
        is_repeatable=True,
        parse=parse_raw,
    )
    drop: tuple[str, ...] = option(
        (), "feature that is left out of the schema", metavar="FEATURE", is_repeatable=True
    )

    def __post_init__(self) -> None:
        check_strings("images", self.images)
        check_strings("drop", self.drop)
        for name, times in Counter(self.names).items():
            if times > 1:
                raise OptionsError("feature-roles-repeated", name=name, times=times)
        for name, (dtype, shape) in self.raw.items():
            try:
                Feature(name, "raw", dtype, shape)
            except ValueError as error:
                given = f"{name}={dtype}{list(shape)}"
                raise OptionsError("raw-invalid", given=given, error=error) from None

    @property
    def names(self) -> list[str]:
        """The names of all features with a role."""
        return [*([self.label] if self.label else []), *self.images, *self.raw, *self.drop]

    def may_be_label(self, name: str) -> bool:
        """Return whether the values of a feature may be classes, if they are integers."""
        return name == self.label if self.label else _LABEL_NAMES.fullmatch(name) is not None
