"""``Examples``: the source of any Python iterable, which is read once into files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, ClassVar, cast

from tfshards.prep.progress.lines import Meter
from tfshards.prep.sources.base import NamedClasses
from tfshards.prep.sources.elements import Elements
from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.spill import Description, Spill, described, stage_elements
from tfshards.prep.sources.staged_reader import StagedReader
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.names import name_fault


@dataclass(frozen=True)
class Examples(Elements, NamedClasses):
    """The examples of any Python iterable: dicts of values by name, or pairs ``(key, dict)``.

    The iterable is a list, a generator, an object with ``__len__`` and ``__getitem__`` such as a dataset of
    PyTorch, a Hugging Face ``Dataset``, a ``tf.data.Dataset`` of dicts, or anything else that Python iterates
    over. A function without arguments is called and returns it, so that it can be read again. A mapping by
    the names of splits, such as a ``DatasetDict``, has one for each split.

    Values are arrays, tensors, numbers, booleans, text, ``bytes``, lists, and dicts, whose fields become
    ``NAME/FIELD``. An image is an encoded image as ``bytes``, a path, a picture of Pillow, an array of
    pixels, or a dict ``{"bytes": ..., "path": ...}``; pictures and pixels are stored as PNG.

    The first example and the roles decide which features there are; all examples have the same ones. Where
    the first example has a floating point number of Python, or a list of them, others may have integers.

    The key of an example is the one of the pair, or the value with the role ``key``, or else its number, from
    ``0000000000``; in a mapping by split it begins with ``SPLIT/``. The iterable is read once, into files in
    the build area of the dataset, so that it may be larger than memory.

    Attributes:
        examples: the iterable, or a mapping of iterables by split.
        roles: role of each value whose name does not decide it, such as ``{"photo": "image", "s": "mask"}``.
            ``file_name``, ``image``, ``label``, ``split`` and ``key`` need none; other values are stored as
            they are.
        images: how images are checked, converted and stored.
        class_names: class names in label order; by default the sorted names in the data.
        outside_boxes: what to do about boxes and keypoints outside of their image: ``reject``, ``clip`` or
            ``keep``.
        boxes_in: whether boxes and keypoints of turned images refer to the pixels in the ``file`` or to the
            ``upright`` image.

    Raises:
        OptionsError: a role is unknown, or two values have a role that only one may have.
    """

    source: ClassVar[str] = "examples"

    examples: Iterable[object] | Mapping[str, Any] | Callable[[], Iterable[object]]

    def stage(self, folder: Path, *, group_by: str | None = None, preview: bool = False) -> StagedReader:
        """Return a reader of the examples, after reading them into ``folder``.

        Args:
            folder: an empty folder.
            group_by: a regular expression with one group, for the keys.
            preview: read the examples, but write nothing.

        Raises:
            InputError: there are no examples, they differ in their names, dtypes or shapes, a value cannot be
                stored, or a key is repeated.
        """
        spill = Spill(self, None if preview else folder)
        with Meter("reading examples", _length_of(self.examples), "examples") as meter:
            table = described(_descriptions(spill, self.examples, meter))
        spill.close()
        if spill.form is None:
            raise InputError(
                "there are no examples; if an iterator was read before, give a function that makes one"
            )
        splits = {*self.examples} if isinstance(self.examples, Mapping) else set()
        left = splits - {to_text(split) for split in table["split"].unique().to_pylist()}
        return stage_elements(
            self,
            spill.form,
            table,
            folder,
            group_by=group_by,
            warnings=[f"the split {each!r} has no examples; it is left out" for each in sorted(left)],
            is_numbered=spill.is_numbered,
            preview=preview,
        )


def _descriptions(spill: Spill, examples: object, meter: Meter) -> Iterator[Description]:
    """Store the examples of an iterable, or of each iterable in a mapping of them by split; describe each."""
    parts = examples if isinstance(examples, Mapping) else {"": examples}
    for split, part in parts.items():
        fault = name_fault(split) if isinstance(split, str) else f"{split!r} must be a string"
        if fault and parts is examples:
            raise OptionsError(
                f"the split {fault}; a mapping has an iterable of examples for each split; Arrays(...) "
                "takes a dict of arrays"
            )
        for number, item in enumerate(_items(part)):
            key, values = item if isinstance(item, (tuple, list)) and len(item) == 2 else (None, item)
            if not isinstance(values, Mapping):
                where = f" of the split {split!r}" if split else ""
                raise InputError(
                    f"example {number}{where} is of type {type(item).__name__}; give dicts of values by "
                    "name, or pairs of a key and a dict; Table(frame) takes a table"
                )
            yield spill.describe(key, values, split, number)
            meter.add(1)


def _items(given: object) -> Iterable[object]:
    if callable(given) and not hasattr(given, "__iter__") and not hasattr(given, "__getitem__"):
        given = given()
    is_text = isinstance(given, (str, bytes))
    if isinstance(given, Iterable) and not is_text:
        return given
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not is_text:
        found = cast("Sequence[object]", given)
        return (found[number] for number in range(len(found)))
    what = "a path" if isinstance(given, (str, bytes, PurePath)) else f"of type {type(given).__name__}"
    raise OptionsError(
        f"the examples are {what}, which cannot be iterated over; give an iterable of dicts, "
        "ImageFolder(...) for a folder, or Table(...) for a file"
    )


def _length_of(given: object) -> int | None:
    """Return the number of examples, if it is known before they are read."""
    try:
        return sum(map(len, given.values() if isinstance(given, Mapping) else [cast("Any", given)]))
    except TypeError:
        # tf.data has the method, and raises where the number is not known
        return None
