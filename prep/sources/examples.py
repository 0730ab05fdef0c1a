"""``Examples``, the source of any Python iterable, and what it shares with the elements of a Beam pipeline.

Values are written to files while they are read, see ``staged.py``. Of each example a description of about 100
bytes is left, from which all of them are listed: that is all that a runner shuffles of the elements.

rows.arrow  of a pipeline: the descriptions of all elements, sorted by key, from which each step lists them
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import length_hint
from pathlib import Path, PurePath
from typing import Any, ClassVar, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.imaging.options import ImageOptions, changed_images
from tfshards.prep.option import changed_options, check_choices
from tfshards.prep.progress.lines import Meter
from tfshards.prep.sources.base import Source
from tfshards.prep.sources.classes import ClassNames, given_class_names
from tfshards.prep.sources.elements import WHERE, Form, encode_element, special_value
from tfshards.prep.sources.features import TEXT
from tfshards.prep.sources.keys import groups_of_keys, number_key, to_bytes, to_text
from tfshards.prep.sources.labels import label_column
from tfshards.prep.sources.pictures import ImageRules, check_mask_depth
from tfshards.prep.sources.roles import check_effect, check_roles, is_template
from tfshards.prep.sources.staged import Rows, Spill, stage
from tfshards.prep.sources.staged_reader import ROWS_NAME, SPILLED, ArrowKeys, StagedReader, mapped_table
from tfshards.prep.sources.staging_folder import make_staged
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import check_instance, listed
from tfshards.schemas.json_reader import take
from tfshards.schemas.names import name_fault
from tfshards.schemas.storage import AnyPath, LocalPath

# What is known of an element: its key, the number or name of its class or None, its split or an empty text,
# its form as JSON if it is the first of its bundle, and where its values are. Labels have the type of their
# values.
Description: TypeAlias = tuple[object, ...]
_DESCRIBED = {"key": TEXT, "label": pa.null(), "split": TEXT, "form": pa.string(), **SPILLED}
_ROWS_AT_ONCE, _BLOCK_BYTES = 1 << 14, 1 << 20
_SHOWN = 5


@dataclass(frozen=True)
class Examples(Source):
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
        class_names: class names in label order, a file of them, one per line, or a dataset that has them; by
            default the sorted names in the data.
        outside_boxes: what to do about boxes and keypoints outside of their image: ``reject``, ``clip`` or
            ``keep``.
        boxes_in: whether boxes and keypoints of turned images refer to the pixels in the ``file`` or to the
            ``upright`` image.

    Raises:
        OptionsError: a role is unknown, or two values have a role that only one may have.
    """

    examples: Iterable[object] | Mapping[str, Any] | Callable[[], Iterable[object]]
    roles: Mapping[str, str] = field(default_factory=dict)
    images: ImageOptions = field(default_factory=ImageOptions)
    class_names: ClassNames = None
    outside_boxes: Outside = "reject"
    boxes_in: Reference | None = None

    RECORDED: ClassVar[tuple[str, ...]] = ("outside_boxes", "boxes_in")

    def __post_init__(self) -> None:
        check_choices(self)
        check_roles(self.roles)
        given_class_names(self.class_names)
        check_instance("images", self.images, ImageOptions)
        if template := next(filter(is_template, self.roles), None):
            raise OptionsError(f"roles: {template!r} is a template of paths, which only tables have")

    def stage(self, folder: Path | None, *, group_by: str | None = None) -> StagedReader:
        """Return a reader of the examples, after reading them into ``folder``.

        Args:
            folder: an empty folder; None to read the examples, but write nothing.
            group_by: a regular expression with one group, for the keys.

        Raises:
            InputError: there are no examples, they differ in their names, dtypes or shapes, a value cannot be
                stored, or a key is repeated.
        """
        local = None if folder is None else LocalPath(folder)
        bundle = Bundle(self, local)
        parts = self.examples.values() if isinstance(self.examples, Mapping) else [self.examples]
        # of a generator and the like it is not known
        length = sum(map(length_hint, parts)) or None
        with Meter("reading examples", length, "examples") as meter:
            table = described(_descriptions(bundle, self.examples, meter))
        bundle.close()
        if not table.num_rows:
            raise InputError(
                "there are no examples; if an iterator was read before, give a function that makes one"
            )
        splits = {*self.examples} if isinstance(self.examples, Mapping) else set()
        left = splits - {to_text(split) for split in table["split"].unique().to_pylist()}
        return stage_elements(
            self,
            table,
            local,
            group_by=group_by,
            warnings=[f"the split {each!r} has no examples; it is left out" for each in sorted(left)],
            is_numbered=bundle.is_numbered,
        )

    def check(self, form: Form) -> None:
        """Raise an error if an option has no effect on elements of this form."""
        of_labels = ["class_names"] * (self.class_names is not None)
        check_effect(WHERE, form.roles.values(), changed_images(self.images.to_json()), of_labels)
        check_mask_depth(self.images, has_masks=any(feature.is_mask for feature in form.features))
        self.rules(form)

    def rules(self, form: Form) -> ImageRules:
        """Return how images are stored of elements of this form."""
        return ImageRules.of(form.features, self.images, self.outside_boxes, self.boxes_in)


def _descriptions(bundle: Bundle, examples: object, meter: Meter) -> Iterator[Description]:
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
            yield bundle.describe(key, values, split, number)
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


class Bundle:
    """Stores the values of the elements of one bundle, or of one iterable, in one file of a folder.

    Attributes:
        is_numbered: whether keys are numbers of elements.
    """

    def __init__(self, source: Examples, folder: AnyPath | None, *, has_others: bool = False) -> None:
        """Create nothing before the first element; without a folder, elements are only described.

        Args:
            source: how elements are stored.
            folder: the folder.
            has_others: whether there are other bundles, so that the first element here must not decide about
                lists and numbers of Python; the folder is created.
        """
        self._source, self._folder, self._has_others = source, folder, has_others
        self._spill: Spill | None = None
        # of all of its elements; None before the first one
        self._form: Form | None = None
        self.is_numbered: bool = False

    def describe(self, key: object, values: object, split: str = "", number: int = 0) -> Description:
        """Store an element, and return its description; errors name its key.

        Args:
            key: its key; None if that is one of the values, or else the number.
            values: values by name.
            split: name of its iterable in a mapping of them; otherwise empty.
            number: its number in its iterable.
        """
        shown = number_key(number) if key is None else to_text(cast("bytes", special_value("", key, "key")))
        source, first = self._source, None if self._has_others else self._form
        try:
            form, stored, special = encode_element(values, source.roles, source.images, first)
        except InputError as error:
            raise InputError(f"{shown}: {error}") from None
        for role, given in (("split", split or None), ("key", key)):
            if given is not None and role in special:
                raise InputError(
                    f"{shown}: the {role} is given, and a value has the role {role}, too; give the value "
                    "the role value or drop"
                )
        form_text = ""
        if self._spill is None or self._form is None:
            source.check(form)
            self._form, self._first_key = form, shown
            if self._folder is not None and self._has_others:
                make_staged(self._folder)
            self._spill = Spill(self._folder, form.spilled)
            form_text = json.dumps(form.to_json(), sort_keys=True)
        elif form != self._form:
            self._form.check_same(self._first_key, form, shown)
        self.is_numbered |= key is None and "key" not in special
        prefix = to_bytes(f"{split}/") if split else b""
        key, split = prefix + special.get("key", to_bytes(shown)), split or special.get("split", "")
        return key, special.get("label"), split, form_text, *self._spill.add(stored)

    def close(self) -> None:
        """Finish the file, which other machines may not see before."""
        if self._spill is not None:
            self._spill.finish()


def described(rows: Iterable[Description]) -> pa.Table:
    """Return descriptions as a table, sorted by key; the rows need not fit into memory."""
    rows, kinds = iter(rows), set[type]()
    tables = [pa.schema(_DESCRIBED.items()).empty_table()]
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = dict(zip(_DESCRIBED, zip(*some, strict=True), strict=True))
        kinds |= {*map(type, columns["label"])} - {type(None)}
        if len(kinds) > 1:
            raise InputError("the labels are both integers and text; make them one of the two")
        arrays = {
            name: pa.array(column, None if name == "label" else _DESCRIBED[name])
            for name, column in columns.items()
        }
        tables.append(pa.table(arrays))
    table = pa.concat_tables(tables, promote_options="default")
    return table.take(pc.sort_indices(table["key"])).combine_chunks()


def stage_elements(
    source: Examples,
    table: pa.Table,
    folder: AnyPath | None,
    *,
    group_by: str | None,
    warnings: Sequence[str] = (),
    is_numbered: bool = False,
    is_written: bool = False,
) -> StagedReader:
    """Return a reader of the described elements, whose values are in a folder; see ``stage``.

    Raises:
        InputError: the elements differ in their form, a key is repeated, an element has no group, or the
            labels are not classes.
    """
    firsts = table.filter(pc.not_equal(table["form"], ""))
    # by their keys; of one form, all texts are the same
    forms = dict(zip(firsts["form"].to_pylist(), map(to_text, firsts["key"].to_pylist()), strict=True))
    (form, key), *others = ((cast("Form", take(json.loads(text), Form)), key) for text, key in forms.items())
    for other, other_key in others:
        form.check_same(key, other, other_key)
    keys = table["key"].combine_chunks()
    twice = keys[1:].filter(pc.equal(keys[1:], keys[:-1])).unique().to_pylist()
    if twice:
        names = listed([repr(to_text(key)) for key in twice], _SHOWN)
        raise InputError(f"several examples have the same key: {names}; give each example its own key")
    label = next((feature.name for feature in form.features if feature.is_label), None)
    found = label_column(label, table["label"], source.class_names) if label else None
    by = "a regular expression with one (group)"
    rows = Rows(
        num_rows=len(keys),
        features=form.features,
        rules=source.rules(form),
        recorded={
            "source": "examples",
            "columns": dict(form.roles),
            **changed_options(source, source.RECORDED),
        },
        values={label: found.values} if label and found else {},
        spilled=table.select([*SPILLED]),
        spilled_names=[feature.name for feature in form.spilled],
        keys=table["key"],
        splits=table["split"] if table["split"][0].as_py() else None,
        groups=None if group_by is None else groups_of_keys(group_by, ArrowKeys(table["key"]), by),
        class_names=found.class_names if found else (),
        warnings=[*form.warnings(), *([found.warning] if found and found.warning else []), *warnings],
        is_numbered=is_numbered,
    )
    return stage(rows, folder, is_written=is_written)


def keep_described(table: pa.Table, folder: AnyPath) -> None:
    """Write the descriptions of the elements of a pipeline into the folder of their values."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    # a runner may repeat this step while others read the table; a power failure must not leave half of it
    data = sink.getvalue()
    blocks = (data[at : at + _BLOCK_BYTES].to_pybytes() for at in range(0, len(data), _BLOCK_BYTES))
    (folder / ROWS_NAME).write(blocks)


def kept_elements(source: Examples, folder: AnyPath, group_by: str | None) -> StagedReader:
    """Return the reader of the elements of a pipeline, whose descriptions are in a folder."""
    # workers find keys and origins in the descriptions
    table = mapped_table(folder / ROWS_NAME)
    return stage_elements(source, table, folder, group_by=group_by, is_written=True)
