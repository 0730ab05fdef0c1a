"""Elements on their way: their values are written to files, and each is described in a few bytes.

*.spill     values of the elements of a bundle, or of an iterable, see ``wide.py``; the first line is the form
rows.arrow  of a pipeline: the descriptions of all elements, sorted by key, from which each step lists them
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.option import changed_options
from tfshards.prep.sources.elements import Elements, Form, encode_key
from tfshards.prep.sources.features import TEXT
from tfshards.prep.sources.keys import groups_of_keys, number_key, to_bytes, to_text
from tfshards.prep.sources.labels import label_column
from tfshards.prep.sources.staged import Rows, stage
from tfshards.prep.sources.staged_reader import ROWS_NAME, ArrowKeys, StagedReader, mapped_table
from tfshards.prep.sources.staging_folder import make_staged
from tfshards.prep.sources.wide import WIDE_COLUMNS, Wide, WideFile, header_of
from tfshards.schemas import InputError
from tfshards.schemas.errors import listed
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.verbs import write

_FORM_BYTES = 8
_ROWS_AT_ONCE, _BLOCK_BYTES = 1 << 14, 1 << 20
_SHOWN = 5


class Description(NamedTuple):
    """What the plan needs to know of one element.

    Attributes:
        label: number or name of its class; None for no class.
        split: name of its split; empty if there are none.
        form: digest of its form.
        size: number of bytes of its values.
        digest: digest of its values.
        origin: where its values are, see ``wide.py``.
    """

    key: bytes
    label: int | str | None
    split: str
    form: bytes
    size: int
    digest: bytes
    origin: bytes


class Spill:
    """Stores the values of the elements of one bundle, or of one iterable, in one file of a folder.

    Attributes:
        form: the form of all of its elements; None before the first one.
        is_numbered: whether keys are numbers of elements.
    """

    def __init__(self, elements: Elements, folder: AnyPath | None, *, is_bundle: bool = False) -> None:
        """Create nothing before the first element; without a folder, elements are only described.

        Args:
            elements: how elements are stored.
            folder: the folder; it is created for a bundle.
            is_bundle: whether there are others, so that the first element here must not decide about lists
                and numbers of Python.
        """
        self._elements, self._folder, self._is_bundle = elements, folder, is_bundle
        self._file: WideFile | None = None
        self.form: Form | None = None
        self.is_numbered: bool = False

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
        return self._file.num_bytes if self._file else 0

    def describe(self, key: object, values: object, split: str = "", number: int = 0) -> Description:
        """Store an element, and return its description; errors name its key.

        Args:
            key: its key; None if that is one of the values, or else the number.
            values: values by name.
            split: name of its iterable in a mapping of them; otherwise empty.
            number: its number in its iterable.
        """
        shown = number_key(number) if key is None else to_text(encode_key(key))
        try:
            encoded = self._elements.encode(values, None if self._is_bundle else self.form)
        except InputError as error:
            raise InputError(f"{shown}: {error}") from None
        form = encoded.form
        for role, given in (("split", split or None), ("key", key)):
            if given is not None and form.has_role(role):
                raise InputError(
                    f"{shown}: the {role} is given, and a value has the role {role}, too || give the value "
                    "the role value or drop"
                )
        if self._file is None or self.form is None:
            self._file = self._begun(form, shown)
        elif form != self.form:
            self.form.check_same(self._first_key, form, shown)
        has_own_key = form.has_role("key")
        self.is_numbered |= key is None and not has_own_key
        own_key = encode_key(encoded.key) if has_own_key else to_bytes(shown)
        prefix = to_bytes(f"{split}/") if split else b""
        written = self._file.add(encoded.values)
        return Description(
            prefix + own_key, encoded.label, split or encoded.split, self._form_digest, *written
        )

    def _begun(self, form: Form, shown: str) -> WideFile:
        """Return a new file of elements of this form, that of the first element."""
        self._elements.check(form)
        self.form, self._first_key = form, shown
        if self._folder is not None and self._is_bundle:
            make_staged(self._folder)
        header = json.dumps(form.to_json(), sort_keys=True).encode("ascii") + b"\n"
        self._form_digest = hashlib.sha256(header).digest()[:_FORM_BYTES]
        return WideFile(self._folder, form.wide, header)

    def close(self) -> None:
        """Finish the file, which other machines may not see before."""
        if self._file is not None:
            self._file.finish()


def described(rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Return descriptions as a table, sorted by key; the rows need not fit into memory."""
    # labels have the type of their values
    types = {"key": TEXT, "label": pa.null(), "split": TEXT, "form": pa.binary(_FORM_BYTES), **WIDE_COLUMNS}
    rows, kinds = iter(rows), set[type]()
    tables = [pa.schema(types.items()).empty_table()]
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = dict(zip(types, zip(*some, strict=True), strict=True))
        kinds |= {*map(type, columns["label"])} - {type(None)}
        if len(kinds) > 1:
            raise InputError("the labels are both integers and text || make them one of the two")
        arrays = {
            name: pa.array(column, None if name == "label" else types[name])
            for name, column in columns.items()
        }
        tables.append(pa.table(arrays))
    table = pa.concat_tables(tables, promote_options="default")
    return table.take(pc.sort_indices(table["key"])).combine_chunks()


def stage_elements(
    elements: Elements,
    form: Form,
    table: pa.Table,
    folder: AnyPath,
    *,
    group_by: str | None,
    warnings: Sequence[str] = (),
    is_numbered: bool = False,
    preview: bool = False,
) -> StagedReader:
    """Return a reader of the described elements of one form, whose values are in a folder; see ``stage``.

    Raises:
        InputError: a key is repeated, an element has no group, or the labels are not classes.
    """
    keys = table["key"].combine_chunks()
    twice = keys[1:].filter(pc.equal(keys[1:], keys[:-1])).unique().to_pylist()
    if twice:
        names = listed([repr(to_text(key)) for key in twice], _SHOWN)
        raise InputError(f"several examples have the same key: {names} || give each example its own key")
    label, class_names = form.label, elements.class_names
    found = label_column(label, table["label"], class_names) if label else None
    by = "a regular expression with one (group)"
    rows = Rows(
        num_rows=len(keys),
        features=form.features,
        rules=elements.rules(form),
        recorded={
            "source": elements.source,
            "columns": dict(form.roles),
            **changed_options(elements, elements.RECORDED),
        },
        values={label: found.values} if label and found else {},
        wide=Wide(tuple(feature.name for feature in form.wide), table.select([*WIDE_COLUMNS]), {}),
        keys=table["key"],
        splits=table["split"] if table["split"][0].as_py() else None,
        groups=None if group_by is None else groups_of_keys(group_by, ArrowKeys(table["key"]), by),
        class_names=found.class_names if found else (),
        warnings=[*form.warnings(), *([found.warning] if found and found.warning else []), *warnings],
        is_numbered=is_numbered,
    )
    return stage(rows, folder, preview=preview)


def keep_described(table: pa.Table, folder: AnyPath) -> None:
    """Write the descriptions of the elements of a pipeline into the folder of their values."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    # a runner may repeat this step while others read the table; a power failure must not leave half of it
    data = sink.getvalue()
    blocks = (data[at : at + _BLOCK_BYTES].to_pybytes() for at in range(0, len(data), _BLOCK_BYTES))
    write(folder / ROWS_NAME, blocks)


def kept_elements(elements: Elements, folder: AnyPath, group_by: str | None) -> StagedReader:
    """Return the reader of the elements of a pipeline, whose descriptions are in a folder.

    Raises:
        InputError: the elements differ in their form, or see ``stage_elements``.
    """
    table = mapped_table(folder / ROWS_NAME)
    form = _form_in(folder, table["origin"][0].as_py())
    other = pc.index(pc.equal(table["form"], table["form"][0]), False).as_py()
    if other >= 0:
        keys = [to_text(table["key"][row].as_py()) for row in (0, other)]
        form.check_same(keys[0], _form_in(folder, table["origin"][other].as_py()), keys[1])
    # workers find keys and origins in the descriptions
    return stage_elements(elements, form, table, folder, group_by=group_by, preview=True)


def _form_in(folder: AnyPath, origin: bytes) -> Form:
    """Return the form of the elements in the file with this origin."""
    return Form.from_json(json.loads(header_of(folder, origin)))
