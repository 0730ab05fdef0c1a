"""Columns: arrays in files that workers map into memory.

A column is an array, or a field of a structured one; in one file, or in several that are its parts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.plan import IntArray
from tfshards.schemas import InputError

AnyArray: TypeAlias = npt.NDArray[np.generic]


class Column(Protocol):
    """One feature of every example.

    Attributes:
        dtype: NumPy's string for it, with the byte order, or ``bfloat16``.
        shape: with the number of examples first.
    """

    @property
    def dtype(self) -> str:
        """See the class."""

    @property
    def shape(self) -> tuple[int, ...]:
        """See the class."""

    def take(self, numbers: IntArray) -> AnyArray:
        """Return a copy of these rows; of bfloat16 as uint16.

        Raises:
            InputError: a file is gone, or is not the one that was listed.
        """

    def check_unchanged(self) -> None:
        """Raise InputError if a file is gone, or is not the one that was listed."""

    def summary(self) -> tuple[object, ...]:
        """Return what says how the content is laid out, and what it is."""


@dataclass(frozen=True)
class FileColumn:
    """An array in one file.

    Attributes:
        path: the file; empty if only the header was looked at.
        offset: bytes before the first element.
        dtype: see ``Column``; without fields.
        shape: with the number of examples first.
        fortran: whether the first axis varies fastest.
        identity: says what the content is: size and modification time, or a digest.
        is_original: whether the file is the user's own rather than a copy, so that it might change.
        strides: bytes from an element to the next along each axis, where other fields stand between them.
    """

    path: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    fortran: bool
    identity: str
    is_original: bool = False
    strides: tuple[int, ...] | None = None

    def open(self) -> AnyArray:
        """Return the array, mapped read-only; one of bfloat16 as uint16.

        Raises:
            InputError: the file is gone, or is not the one that was listed.
        """
        self.check_unchanged()
        dtype = np.dtype("<u2" if self.dtype == "bfloat16" else self.dtype)
        if not math.prod(self.shape) * dtype.itemsize:
            return np.zeros(self.shape, dtype)
        try:
            data = np.memmap(self.path, np.uint8, "r")
            order: Literal["F", "C"] = "F" if self.fortran else "C"
            array: AnyArray = np.ndarray(self.shape, dtype, data, self.offset, self.strides, order)
        except (OSError, ValueError, TypeError) as error:
            # cut between the look at its size and this
            raise InputError(f"{self.path}: cannot be mapped into memory: {error}") from None
        return array

    def take(self, numbers: IntArray) -> AnyArray:
        """Return a copy of these rows, see ``Column``."""
        rows: AnyArray = self.open()[numbers]
        self.check_unchanged()
        return rows

    def check_unchanged(self) -> None:
        """Raise InputError if the file is gone, or is not the one that was listed."""
        try:
            if not self.is_original or file_identity(os.stat(self.path)) == self.identity:
                return
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror}") from None
        raise InputError(f"{self.path}: changed after the build had listed it; run the command again")

    def summary(self) -> tuple[object, ...]:
        """Return what says how the content is laid out, and what it is."""
        plain = (self.dtype, self.shape, self.fortran, self.identity)
        return plain if self.strides is None else (*plain, self.offset, self.strides)


@dataclass(frozen=True)
class PartedColumn:
    """Several arrays as one, concatenated along axis 0. Rows are taken from the part that they are in.

    Attributes:
        parts: of one shape behind the first axis, and of one dtype but for the byte order and the length
            of strings.
    """

    parts: tuple[FileColumn, ...]

    @property
    def dtype(self) -> str:
        """The dtype that holds each part's values, in native byte order."""
        widest = max((np.dtype(part.dtype) for part in self.parts), key=lambda dtype: dtype.itemsize)
        native: str = widest.newbyteorder("=").str
        return native

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all, with the number of examples first."""
        return (sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:])

    def take(self, numbers: IntArray) -> AnyArray:
        """Return a copy of these rows, see ``Column``."""
        ends = np.cumsum([part.shape[0] for part in self.parts])
        places = np.searchsorted(ends, numbers, side="right")
        rows: AnyArray = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for place in np.unique(places).tolist():
            part, chosen = self.parts[place], places == place
            rows[chosen] = part.take(numbers[chosen] - (ends[place] - part.shape[0]))
        return rows

    def check_unchanged(self) -> None:
        """Raise InputError if a file is gone, or is not the one that was listed."""
        for part in self.parts:
            part.check_unchanged()

    def summary(self) -> tuple[object, ...]:
        """Return what says how the content is laid out, and what it is."""
        return tuple(part.summary() for part in self.parts)


def whole(column: Column) -> AnyArray:
    """Return a copy of all rows of a column. It is for scalars: others need not fit into memory."""
    return column.take(np.arange(column.shape[0], dtype=np.int64))


def file_identity(status: os.stat_result) -> str:
    """Return what tells a file from the same one after a change."""
    return f"{status.st_size} bytes at {status.st_mtime_ns}"


def split_fields(column: FileColumn, dtype: np.dtype[np.generic]) -> dict[tuple[str, ...], FileColumn]:
    """Return the columns of a structured array's fields, by their names from the outermost to the innermost.

    Args:
        column: the array as a whole; its dtype is not looked at.
        dtype: of the array; without fields, the one column has the name ``()``.
    """
    if dtype.names is None:
        return {(): replace(column, dtype=dtype.str)}
    strides = _strides(column.shape, dtype.itemsize, fortran=column.fortran)
    return {
        names: replace(
            column,
            offset=column.offset + offset,
            dtype=leaf.str,
            shape=(*column.shape, *shape),
            fortran=False,
            strides=(*strides, *inner),
        )
        for names, leaf, offset, shape, inner in _leaves(dtype)
    }


def join_parts(name: str, parts: Sequence[tuple[str, FileColumn]]) -> Column:
    """Return several columns as one.

    Args:
        name: of the feature, for messages.
        parts: each with the name of its file; one or more.

    Raises:
        InputError: they differ in dtype or in shape behind the first axis.
    """
    (first_place, first), *others = parts
    if not others:
        return first
    for place, part in others:
        if _item(part) != _item(first):
            found, wanted = (f"{np.dtype(each.dtype)} {each.shape[1:]}" for each in (part, first))
            raise InputError(
                f"{place}: as a part of {name!r} it is {found} an example, but {first_place} is {wanted}; "
                "parts must be alike"
            )
    return PartedColumn(tuple(part for _, part in parts))


def _item(column: FileColumn) -> tuple[object, ...]:
    dtype = np.dtype(column.dtype)
    kind = dtype.kind if dtype.kind in "SU" else dtype.newbyteorder("=")
    return kind, column.shape[1:]


def _leaves(
    dtype: np.dtype[np.generic],
) -> Iterator[tuple[tuple[str, ...], np.dtype[np.generic], int, tuple[int, ...], tuple[int, ...]]]:
    """Yield names, dtype, offset, shape and strides of everything in ``dtype`` that has no fields."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        outer = _strides(shape, base.itemsize, fortran=False)
        for names, leaf, offset, inner_shape, inner in _leaves(base):
            yield names, leaf, offset, (*shape, *inner_shape), (*outer, *inner)
    elif dtype.names is None:
        yield (), dtype, 0, (), ()
    else:
        assert dtype.fields is not None
        for name in dtype.names:
            field, start = dtype.fields[name][:2]
            for names, leaf, offset, shape, strides in _leaves(field):
                yield (name, *names), leaf, start + offset, shape, strides


def _strides(shape: tuple[int, ...], itemsize: int, *, fortran: bool) -> tuple[int, ...]:
    axes = shape if fortran else shape[::-1]
    strides = [itemsize * math.prod(axes[:place]) for place in range(len(axes))]
    return tuple(strides if fortran else strides[::-1])
