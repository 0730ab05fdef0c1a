"""Parse many records at once with NumPy: those that differ in nothing but their values, together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.schemas.errors import OptionsError
from tfshards.schemas.example import ParsedExample
from tfshards.schemas.index import IntArray
from tfshards.schemas.schema import Feature

Octets: TypeAlias = npt.NDArray[np.uint8]
# The values of some examples by feature.
Values: TypeAlias = "dict[str, npt.NDArray[Any]]"

# Records of one length are read and parsed together if they are no fewer, and not longer, than this.
FEWEST, LONGEST = 4, 1 << 15
# Longer records are parsed where they are: protobuf copies them, which takes longer than the search.
_COPIED_BYTES = 1 << 12
# Layouts that are looked for among records of one length.
_MOST_LAYOUTS = 8


class Block(NamedTuple):
    """Some records.

    Attributes:
        rows: their places among those that were asked for.
        records: their data, perhaps read only when it is asked for, once.
        data: the same, shape ``(n, num_bytes)``, if they have one length and are short; else None.
    """

    rows: IntArray
    records: Iterable[bytes]
    data: Octets | None


class UnparsedError(ValueError):
    """A record is not what the schema says; ``row`` is its index in those that were parsed."""

    def __init__(self, row: int, fault: str) -> None:
        super().__init__(fault)
        self.row = row


class _Layout(NamedTuple):
    """Where records of one length have their values.

    Attributes:
        places: the bytes that all records of the layout have in common.
        bits: which bits of these: all, or of varints the highest, which ends a number.
        common: what these bits are.
        spans: the offsets of the values of each feature.
    """

    places: npt.NDArray[np.int64]
    bits: Octets
    common: Octets
    spans: Mapping[str, tuple[int, int]]

    def fits(self, rows: Octets) -> npt.NDArray[np.bool_]:
        """Return which rows have this layout, shape ``(n,)``."""
        fitting: npt.NDArray[np.bool_] = ((rows[:, self.places] & self.bits) == self.common).all(axis=1)
        return fitting


class Columns:
    """Parses records into columns, one for each feature."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self._features = features
        self._dtypes = {feature.name: numpy_dtype(feature) for feature in features}
        # looked up for each value: features of one text
        self._texts = {
            each.name for each in features if each.holds_strings and (each.is_encoded or each.shape == ())
        }
        # features of one number, of a dtype to which it need not be converted
        own = (("int64", "int64"), ("float", "float32"))
        self._numbers = {
            each.name: each.wire for each in features if each.shape == () and (each.wire, each.dtype) in own
        }

    def parse(self, blocks: Sequence[Block], count: int) -> Values:
        """Return the values of ``count`` records, in the order in which they were asked for, by feature.

        Returns:
            Shape ``(n, *feature.shape)`` of the feature's dtype. Byte strings and encoded images are Python's
            bytes in an array of objects, and so are the arrays of features whose shape varies.

        Raises:
            UnparsedError: a record is not a ``tf.train.Example``, or its values do not fit the schema.
        """
        found = {feature.name: self._empty(feature, count) for feature in self._features}
        for block in blocks:
            rows, records = block.rows, block.records
            if block.data is not None:
                left = self._parse_together(rows, together := [*records], block.data, found)
                rows, records = rows[left], map(together.__getitem__, left.tolist())
            for row, record in zip(rows.tolist(), records, strict=True):
                self._parse_one(record, row, found)
        return found

    def parse_records(self, records: Sequence[bytes]) -> Values:
        """Return the values of records, grouped by their lengths; see ``parse``."""
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        order = np.argsort(lengths, kind="stable")
        in_order = lengths[order]
        sizes = np.diff(np.flatnonzero(np.diff(in_order, prepend=-1)), append=len(order))
        are_alone = (np.repeat(sizes, sizes) < FEWEST) | (in_order > LONGEST) | (in_order == 0)
        alone, others = order[are_alone], order[~are_alone]
        blocks = [Block(alone, [records[row] for row in alone.tolist()], None)]
        for rows in in_equal_groups(others, lengths) if len(others) else ():
            group = [records[row] for row in rows.tolist()]
            data = np.frombuffer(b"".join(group), np.uint8).reshape(len(rows), -1)
            blocks.append(Block(rows, group, data))
        return self.parse(blocks, len(records))

    def _empty(self, feature: Feature, count: int) -> npt.NDArray[Any]:
        dtype = self._dtypes[feature.name]
        shape = () if dtype.hasobject else cast("tuple[int, ...]", feature.shape)
        return np.empty((count, *shape), dtype)

    def _parse_together(
        self, places: IntArray, records: Sequence[bytes], matrix: Octets, found: Values
    ) -> IntArray:
        """Parse records of one length, and return the indices of those whose layout is not shared."""
        left = np.arange(len(matrix))
        for _ in range(_MOST_LAYOUTS):
            layout = self._layout_of(records[int(left[0])]) if len(left) else None
            if layout is None:
                break
            fitting = layout.fits(matrix if len(left) == len(matrix) else matrix[left])
            chosen = left[fitting]
            rows = places[chosen]
            fields = matrix if len(chosen) == len(matrix) else matrix[chosen]
            try:
                for feature in self._features:
                    start, end = layout.spans[feature.name]
                    found[feature.name][rows] = self._from_block(feature, fields[:, start:end])
            except ValueError:
                # one by one, to name the first record that does not fit the schema
                break
            left = left[~fitting]
        return left

    def _layout_of(self, record: bytes) -> _Layout | None:
        """Return the layout of a record; None if its values are in several places, or not of their type."""
        found = single_lists(record)
        wires = {feature.name: feature.wire for feature in self._features}
        if found is None or any(name not in found or found[name][0] != wires[name] for name in wires):
            return None
        bits = np.full(len(record), 0xFF, np.uint8)
        for name, (wire, start, end) in found.items():
            bits[start:end] = 0x80 if wire == "int64" and name in wires else 0
        fixed = np.flatnonzero(bits)
        content = np.frombuffer(record, np.uint8)[fixed]
        spans = {name: found[name][1:] for name in wires}
        return _Layout(fixed, bits[fixed], content & bits[fixed], spans)

    def _from_block(self, feature: Feature, block: Octets) -> npt.NDArray[Any]:
        """Return the values of a feature in bytes of one layout, shape ``(n, num_bytes)``."""
        if feature.holds_strings:
            texts = _texts(block)
            is_text = feature.name in self._texts
            return objects(texts if is_text else [self._value(feature, "bytes", [text]) for text in texts])
        values: npt.NDArray[Any] = _integers(block) if feature.wire == "int64" else block
        if feature.wire == "float":
            values = np.ascontiguousarray(block).view("<f4")
        return self._shaped(feature, values)

    def _parse_one(self, record: bytes, row: int, found: Values) -> None:
        try:
            lists = (len(record) > _COPIED_BYTES and single_lists(record)) or {}
            example = None
            for feature in self._features:
                name = feature.name
                wire, start, end = lists.get(name, ("", 0, 0))
                if wire == "bytes":
                    found[name][row] = self._value(feature, wire, [record[start:end]])
                elif wire == self._numbers.get(name) == "int64" and _is_varint(record[start:end]):
                    number, _ = _varint(record, start)
                    found[name][row] = (number + 2**63) % 2**64 - 2**63
                else:
                    example = example or ParsedExample(record)
                    found[name][row] = self._value(feature, *example.typed(name))
        except ValueError as error:
            raise UnparsedError(row, str(error)) from None

    def _value(self, feature: Feature, wire: str, values: Sequence[Any]) -> object:
        """Return the value of a feature in one example."""
        name = feature.name
        if name in self._texts and wire == "bytes" and len(values) == 1:
            return values[0]
        if len(values) == 1 and self._numbers.get(name) == wire:
            return values[0]
        if fault := feature.values_fault(wire, values):
            raise ValueError(f"the feature {name!r} {fault}")
        if feature.holds_strings:
            array = objects(values)
            return array if feature.is_ragged else array.reshape(feature.shape)
        if feature.is_raw:
            return self._shaped(feature, np.frombuffer(values[0], np.uint8)[None])[0]
        wire_dtype = np.float32 if feature.wire == "float" else np.int64
        return self._shaped(feature, np.array([values], wire_dtype))[0]

    def _shaped(self, feature: Feature, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the numbers of some examples, ``(n, numbers)``, or their bytes, in the form of a feature."""
        if feature.is_raw:
            values = np.ascontiguousarray(values).view(_little(self._dtypes[feature.name]))
        else:
            values = values.astype(dtype_named(feature.dtype, feature.name), copy=False)
        if feature.is_ragged:
            if values.shape[1] % feature.num_elements:
                raise ValueError(feature.name)
            return objects([row.reshape(-1, *cast("tuple[int, ...]", feature.shape[1:])) for row in values])
        if values.shape[1] != feature.num_elements:
            raise ValueError(feature.name)
        return values.reshape(len(values), *cast("tuple[int, ...]", feature.shape))


def single_lists(data: bytes) -> dict[str, tuple[str, int, int]] | None:
    """Return the wire type of each feature, and the offsets of its one byte string or run of packed numbers.

    This is the form in which examples are usually written; None if the bytes have another one, or are none.
    """
    found = {}
    try:
        at, end = _inside(data, 0, 0x0A, len(data))
        while at < end:
            name, entry = _inside(data, at, 0x0A, end)
            name, name_end = _inside(data, name, 0x0A, entry)
            feature, at = _inside(data, name_end, 0x12, entry)
            tag = data[feature]
            values, list_end = _inside(data, feature, tag, at)
            start, stop = _inside(data, values, 0x0A, list_end)
            if not stop == list_end == at == entry:
                return None
            found[str(data[name:name_end], "utf-8")] = (_WIRE_OF_TAG[tag], start, stop)
    except (IndexError, KeyError, ValueError):
        return None
    return found if end == len(data) else None


# the tags of the lists of a feature: field number << 3 | 2, length-delimited
_WIRE_OF_TAG = {0x0A: "bytes", 0x12: "float", 0x1A: "int64"}


def _inside(data: bytes, at: int, tag: int, end: int) -> tuple[int, int]:
    """Return the offsets of the value of a field with this tag, or raise ValueError."""
    length, value = data[at + 1], at + 2
    if length > 127:
        length, value = _varint(data, at + 1)
    if data[at] != tag or value + length > end:
        raise ValueError(at)
    return value, value + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, of at most ten bytes, and the offset after it."""
    number, shift = data[at] & 127, 0
    while data[at] > 127:
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise ValueError(at)
        number |= (data[at] & 127) << shift
    return number, at + 1


def _is_varint(data: bytes) -> bool:
    return 0 < len(data) <= 10 and data[-1] < 128 <= min(data[:-1], default=128)


def in_equal_groups(order: IntArray, values: IntArray) -> list[IntArray]:
    """Return parts of ``order``, which sorts ``values``, within which these are equal."""
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


def numpy_dtype(feature: Feature) -> np.dtype[Any]:
    """Return the dtype of a column of a feature: objects if its values are bytes, or differ in shape."""
    if feature.holds_strings or feature.is_ragged:
        return np.dtype(object)
    return dtype_named(feature.dtype, feature.name)


def dtype_named(dtype: str, name: str) -> np.dtype[Any]:
    """Return the dtype of this name, for the feature ``name``, or raise OptionsError without its package."""
    if dtype != "bfloat16":
        return np.dtype(dtype)
    try:
        from ml_dtypes import bfloat16
    except ModuleNotFoundError:
        raise OptionsError(
            f"the feature {name!r} is bfloat16, which NumPy has only with ml_dtypes: pip install ml_dtypes, "
            "or leave it out with select="
        ) from None
    found: np.dtype[Any] = np.dtype(bfloat16)
    return found


def _little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    # not a type of NumPy's own, which has no order
    return dtype if dtype.kind == "V" else dtype.newbyteorder("<")


def raw_bytes(array: npt.NDArray[Any]) -> bytes:
    """Return the bytes of the elements of an array, as a feature of kind ``raw`` holds them."""
    plain = without_bfloat16(array)
    return plain.astype(_little(plain.dtype), copy=False).tobytes()


def without_bfloat16(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array, or the bits of one of bfloat16, which neither files nor byte orders of NumPy know."""
    return np.ascontiguousarray(array).view(np.uint16) if array.dtype.name == "bfloat16" else array


def numbers_in(feature: Feature, data: bytes) -> npt.NDArray[Any]:
    """Return the elements in the bytes of a feature of kind ``raw``, in one row; of bfloat16 as float32."""
    if feature.dtype == "bfloat16":
        return from_bits(np.frombuffer(data, "<u2"))
    return np.frombuffer(data, _little(np.dtype(feature.dtype)))


def from_bits(bits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return the values of bfloat16, which are the upper half of a float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def objects(values: Sequence[object]) -> npt.NDArray[Any]:
    """Return an array of objects, shape ``(n,)``."""
    # np.array() would make one array of arrays that have one shape
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _integers(block: Octets) -> npt.NDArray[np.int64]:
    """Return the numbers in varints that end at the same bytes in all rows, shape ``(n, numbers)``."""
    ends = np.flatnonzero(block[0] < 128)
    if len(ends) == block.shape[1]:
        return block.astype(np.int64)
    starts = np.append(0, ends[:-1] + 1)
    shifts = 7 * (np.arange(block.shape[1]) - np.repeat(starts, ends - starts + 1))
    bits = (block & 127).astype(np.uint64) << shifts.astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts, axis=1).view(np.int64)


def _texts(block: Octets) -> list[bytes]:
    """Return each row as a byte string."""
    if not block.shape[1]:
        return [b""] * len(block)
    rows = np.ascontiguousarray(block).view(np.dtype((np.void, block.shape[1])))
    texts: list[bytes] = rows[:, 0].tolist()
    return texts
