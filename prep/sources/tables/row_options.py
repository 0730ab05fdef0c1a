"""Options of a table: how its rows are read, joined with other tables, and grouped."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from tfshards.prep.sources.tables.csv_file import TextForm
from tfshards.schemas import OptionsError
from tfshards.schemas.option import check_choices, check_strings, option
from tfshards.schemas.storage import is_remote

Header: TypeAlias = Literal["first", "none"]


class Join(NamedTuple):
    """A table to join: its path, the column that both tables have, and its columns if it has no header."""

    path: str
    key: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Join:
        """Return the join that a text such as ``classes.txt=id`` or ``classes.txt=id:id,label`` describes."""
        path, equals, columns = text.rpartition("=")
        key, colon, names = columns.partition(":")
        join = cls(path, key, _names([names]) if colon else ())
        if not (equals and path and key) or (colon and key not in join.names):
            raise OptionsError("join-form", text=text)
        if os.path.isabs(path) or is_remote(path):
            # manifests record no absolute paths
            raise OptionsError("join-path", text=text)
        return join


def _names(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for text in texts for name in text.split(","))


def _skip(text: str | int) -> int:
    if not str(text).isdecimal():
        raise OptionsError("skip-rows-range", found=text)
    return int(text)


@dataclass(frozen=True)
class RowOptions:
    """How the rows of a table are read, joined with other tables, and grouped.

    Attributes:
        delimiter: the character between the values of a text table, whose name may then have any suffix;
            several spaces count as one. By default a comma, and a tab in files named ``.tsv``.
        header: ``none`` if the first row of a text table holds values; ``column_names`` then names the
            columns.
        column_names: names of all columns of a text table without a header.
        skip_rows: number of lines of a text table before its header, or before its first row.
        join: tables with more columns for each row, such as ``labels.csv=image_id``: a path relative to the
            folder of the table, and the column by which rows belong together, of which the joined table has
            each value once. ``classes.txt=id:id,name`` names the columns of a text table without a header.
        one_row_per: rows with equal values in the first of these columns become one example. This column,
            the others in ``one_row_per``, and columns of images, masks and splits must be equal in all rows
            of an example, and stay single values; every other column becomes a list, in the order of the
            rows. A table that is joined by the first of the columns is joined to the examples.

    Raises:
        OptionsError: an option has a wrong form, or one has no effect without another.
    """

    delimiter: str | None = option(
        None,
        "character between the values of a text table; several spaces count as one",
        metavar="CHARACTER",
        default_text="a comma, or a tab in .tsv",
    )
    header: Header = option(
        "first", "whether the first row of a text table names the columns", choices=get_args(Header)
    )
    column_names: tuple[str, ...] = option(
        (),
        "names of the columns of a text table without a header",
        flag="columns",
        metavar="COLUMN,...",
        is_repeatable=True,
        parse=_names,
        to_json=list,
    )
    skip_rows: int = option(
        0, "number of lines before the header of a text table, or its first row", metavar="N", parse=_skip
    )
    join: tuple[str, ...] = option(
        (),
        "table with more columns, its path relative to the folder of the table, and the column that both "
        "have; FILE=COLUMN:COLUMN,... names the columns of a text table without a header",
        metavar="FILE=COLUMN",
        is_repeatable=True,
        to_json=list,
    )
    one_row_per: tuple[str, ...] = option(
        (),
        "make one example of the rows with equal values in this column; other COLUMNs given "
        "must be equal, and all other columns become lists",
        metavar="COLUMN,...",
        is_repeatable=True,
        parse=_names,
        to_json=list,
    )

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("column_names", "join", "one_row_per"):
            check_strings(name, getattr(self, name))
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise OptionsError("delimiter-form", found=self.delimiter)
        if isinstance(self.skip_rows, bool) or not isinstance(self.skip_rows, int) or self.skip_rows < 0:
            raise OptionsError("skip-rows-range", found=self.skip_rows)
        if (self.header == "none") != bool(self.column_names):
            raise OptionsError("header-names", header=self.header)
        for text in self.join:
            Join.of(text)

    @property
    def form(self) -> TextForm:
        """How the values of the table are written, if it is a text table."""
        return TextForm(self.delimiter, tuple(self.column_names), self.skip_rows)

    def joined_form(self, join: Join) -> TextForm:
        """Return how the values of a joined table are written: without a header, no line is skipped."""
        return TextForm(self.delimiter, join.names, 0 if join.names else self.skip_rows)
