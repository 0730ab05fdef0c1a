"""What the features of elements are: images, the label, the split, lists, and others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.sources.classes import check_class_names
from tfshards.schemas import OptionsError
from tfshards.schemas.argument_types import check_instance, check_strings


@dataclass(frozen=True)
class Elements:
    """The elements of a PCollection, ``(key, features)``: a string, and a dict of values by feature name.

    Every element has the same features. Values are NumPy arrays or scalars, numbers, ``str`` or ``bytes``:
    integer scalars are stored as int64 lists, strings as byte strings, and other values as raw little-endian
    bytes, so that they have the same dtype and shape in every element. The key becomes the feature ``key``.

    Attributes:
        images: names of the features that hold encoded images, as ``bytes``.
        label: name of the feature that holds the class: an integer of at least 0, or the name of the class.
        split: name of the feature that names the split, which is not stored; by default all examples are in
            ``train``, or in the splits of ``Options.splits``.
        lists: names of the features to store as int64 or float lists, whose first dimension may differ
            between elements.
        class_names: class names in label order; by default the sorted names in the data, if there are names.
        image_options: how images are checked, converted and stored.
        read: function from the value of an element to its features, for elements ``(key, value)`` that can be
            read again; it is called twice for each element, and must return the same features.

    Raises:
        OptionsError: a feature has two roles, or an option has no effect.
    """

    images: Sequence[str] = ()
    label: str | None = None
    split: str | None = None
    lists: Sequence[str] = ()
    class_names: Sequence[str] | None = None
    image_options: ImageOptions = field(default_factory=ImageOptions)
    read: Callable[[Any], Mapping[str, object]] | None = None

    def __post_init__(self) -> None:
        check_strings("images", self.images)
        check_strings("lists", self.lists)
        check_class_names(self.class_names)
        check_instance("image_options", self.image_options, ImageOptions)
        twice = [name for name, times in Counter(self.named).items() if times > 1]
        if twice:
            raise OptionsError("element-role-repeated", twice=twice[0])
        if self.class_names is not None and self.label is None:
            raise OptionsError("element-class-names-useless")
        if not self.images and self.image_options != ImageOptions():
            raise OptionsError("element-image-options-useless")
        if self.read is not None and not callable(self.read):
            raise OptionsError("element-read-type", read=self.read)

    @property
    def named(self) -> list[str]:
        """The features that have a role, which every element must have."""
        return [*self.images, *self.lists, *(name for name in (self.label, self.split) if name is not None)]
