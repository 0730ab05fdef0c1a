"""``Examples``: the source of any Python iterable, which is read once into files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

from tfshards.prep.imaging.options import MAX_BYTES, ImageOptions
from tfshards.prep.progress.bars import Display
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.elements.reader import ElementsReader, check_features, stage_elements
from tfshards.prep.sources.elements.source import Elements, Encoded, encode_element
from tfshards.prep.sources.elements.spill import Description, Spill
from tfshards.prep.sources.examples.reading import SPLIT, Example, class_names_in, length_of, read_examples
from tfshards.prep.sources.examples.values import (
    DECLARED,
    Value,
    check_masks,
    check_names,
    element_of,
    label_of,
    plain_values,
    values_of,
)
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.option import check_instance
from tfshards.schemas.sizes import size

# the option ``source`` in manifests
SOURCE_NAME = "examples"
# Examples that show what the values are.
_LOOKED_AT = 100


@dataclass(frozen=True)
class Examples:
    """The examples of any Python iterable: dicts of values by name, or pairs ``(key, dict)``.

    The iterable is a list, a generator, an object with ``__len__`` and ``__getitem__``, a pandas DataFrame,
    whose rows are the examples, a Hugging Face ``Dataset``, a ``tf.data.Dataset`` of dicts, a WebDataset, or
    anything else that Python iterates over. A function without arguments is called and returns it, so that it
    can be read again. A mapping by the names of splits, such as a ``DatasetDict``, has one for each split.

    Values are arrays, tensors, numbers, booleans, text, ``bytes``, pictures of Pillow, encoded images
    (``bytes`` that begin like an image file), ``pathlib.Path`` (an image file, which is read), dicts
    ``{"bytes": ..., "path": ...}`` (an image of Hugging Face), lists of numbers or text, whose lengths may
    differ, and dicts, whose fields become ``NAME/FIELD``. The first 100 examples show what the values of a
    name are; all examples have the same names, and values of the same kind, dtype and shape.

    The key of an example is the one that is given, as ``(key, dict)``, as ``__key__`` (WebDataset) or as
    ``key``, or else its number, from ``0000000000``; among splits that are iterables of their own it begins
    with ``SPLIT/``. The iterable is read once, into files in the build area of the dataset, so that it may be
    larger than memory.

    Attributes:
        examples: the iterable, or a mapping of iterables by split.
        schema: kinds of values that the first examples do not show, by name: ``image`` (also of arrays, which
            become PNG), ``mask``, ``label``, ``bytes`` (text), ``int`` and ``float`` (lists of any
            length), ``raw`` (arrays). Names that are not in it are inferred.
        splits: name of the value that names the split, which is not stored; by default ``split``, if there is
            one and it is text; ``""`` for none.
        class_names: class names in label order; by default those of a Hugging Face dataset, or else the
            sorted names in the data. The label is the value declared so, or by default ``label``,
            ``labels``, ``y`` or ``cls``, the first that is text or an integer of at least 0.
        images: how images are checked, converted and stored.

    Raises:
        OptionsError: the examples cannot be iterated over, or the schema has an unknown kind or two labels.
    """

    examples: Iterable[object] | Mapping[str, Any] | Callable[[], Iterable[object]]
    schema: Mapping[str, str] | None = None
    splits: str | None = None
    class_names: Sequence[str] | None = None
    images: ImageOptions = field(default_factory=ImageOptions)

    def __post_init__(self) -> None:
        declared = self.schema or {}
        check_instance("schema", declared, Mapping)
        for name, kind in declared.items():
            if not isinstance(name, str) or kind not in DECLARED:
                raise OptionsError("schema-kind", name=name, kind=kind, allowed=DECLARED)
        if [*declared.values()].count("label") > 1:
            raise OptionsError("schema-labels")
        check_instance("splits", self.splits or "", str)
        check_class_names(self.class_names)
        check_instance("images", self.images, ImageOptions)
        if self.splits and isinstance(self.examples, Mapping):
            raise OptionsError("splits-twice", splits=self.splits)

    def location(self) -> None:
        """Return None, because there is no folder of the examples."""
        return

    def with_class_names(self, names: Sequence[str]) -> Examples:
        """Return the source with these class names, unless it has its own."""
        return self if self.class_names is not None else replace(self, class_names=names)

    def stage(self, folder: Path, *, group_by: str | None = None, preview: bool = False) -> ElementsReader:
        """Return a reader of the examples, after reading them into ``folder``.

        Raises:
            InputError: there are no examples, they differ in their names, kinds, dtypes or shapes, a value
                may be of two kinds, or a key is repeated.
        """
        examples = (
            each._replace(values=plain_values(each.key, each.values)) for each in read_examples(self.examples)
        )
        looked = [*islice(examples, _LOOKED_AT)]
        if not looked:
            raise InputError("examples-none")
        first = [each.values for each in looked]
        found = values_of([(each.key, each.values) for each in looked], self.schema or {})
        check_masks(found, first, self.schema or {}, MAX_BYTES)
        spooling = _Spooling(self._elements(found, first), found, folder)
        kinds = {feature.name: feature.kind for feature in spooling.encoded(looked[0]).features}
        for name, kind in (self.schema or {}).items():
            # elements have labels as they are given
            if kind not in ("label", kinds[name]):
                raise InputError("schema-differs", name=name, kind=kind, found=kinds[name])
        total = len(looked) if len(looked) < _LOOKED_AT else length_of(self.examples)
        spooling.read(chain(looked, examples), total)
        reader = ElementsReader.open(spooling.elements, folder)
        numbered = any(each.is_numbered for each in looked)
        warnings = [
            f"{name!r}: lists of numbers are stored as float32"
            for name, value in found.items()
            if value.is_rounded
        ]
        if isinstance(self.examples, Mapping):
            held = reader.listing().splits or {}
            warnings += [
                f"the split {split!r} has no examples; it is left out"
                for split in self.examples
                if split not in held
            ]
        return replace(
            reader,
            source=SOURCE_NAME,
            is_numbered=numbered,
            warnings=tuple(warnings),
            group_by=group_by,
        )

    def _elements(self, found: dict[str, Value], first: Sequence[Mapping[str, object]]) -> Elements:
        """Return what the elements are; text of the label and the split becomes of kind ``label``."""
        split = SPLIT if isinstance(self.examples, Mapping) else self._split(found, first)
        label = label_of({name: value for name, value in found.items() if name != split}, first)
        found |= {name: Value("label") for name in (label, split) if name}
        by_kind: dict[str, list[str]] = {kind: [] for kind in DECLARED}
        for name, value in found.items():
            by_kind[value.kind].append(name)
        if not by_kind["image"] + by_kind["mask"] and self.images != ImageOptions():
            raise OptionsError("examples-no-images", names=_names(found))
        names = self.class_names or (class_names_in(self.examples, label) if label else None)
        if names and not label:
            raise InputError("examples-no-label", names=_names(found))
        return Elements(
            images=by_kind["image"],
            masks=by_kind["mask"],
            label=label,
            split=split,
            lists=[name for name, value in found.items() if value.shape is not None],
            class_names=names,
            image_options=self.images,
        )

    def _split(self, found: Mapping[str, Value], first: Sequence[Mapping[str, object]]) -> str | None:
        if self.splits and self.splits not in found:
            raise InputError("splits-unknown", splits=self.splits, names=_names(found))
        is_text = all(isinstance(each.get("split"), (str, bytes)) for each in first)
        usual = "split" if is_text and "split" not in (self.schema or {}) else None
        return usual if self.splits is None else self.splits or None


@dataclass(frozen=True)
class _Spooling:
    """Reads examples into a folder."""

    elements: Elements
    found: Mapping[str, Value]
    folder: Path

    def encoded(self, example: Example) -> Encoded:
        return encode_element(self.elements, example.key, self._element(example))

    def _element(self, example: Example) -> dict[str, object]:
        check_names(example.key, example.values, self.found)
        try:
            return element_of(self.found, example.values, MAX_BYTES)
        except InputError as error:
            raise InputError("element-fault", key=example.key, error=error) from None

    def read(self, examples: Iterable[Example], total: int | None) -> None:
        """Write the values and the table of all examples."""
        spill = Spill(self.elements, self.folder, makes_folder=False)
        rows: list[Description] = []
        num_bytes, started = 0, time.monotonic()
        with Display("reading examples", total, "examples") as display:
            for example in examples:
                row = Description._make(
                    cast("Sequence[Any]", spill.describe((example.key, self._element(example))))
                )
                if rows and row.features != rows[0].features:
                    check_features((rows[0], row), self.folder)
                rows.append(row)
                num_bytes += row.size
                display.advance(1, size(num_bytes))
                if display.is_due:
                    display.report(len(rows), len(rows) / (time.monotonic() - started), num_bytes)
        spill.close()
        stage_elements(self.elements, rows, self.folder)


def _names(found: Iterable[str]) -> list[str]:
    return [name for name in found if name != SPLIT]
