"""Options of a table: how its rows are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from tfshards.prep.sources.tables.csv_file import TextForm
from tfshards.schemas import OptionsError
from tfshards.schemas.option import check_choices, check_strings, option

Header: TypeAlias = Literal["first", "none"]


def _names(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for text in texts for name in text.split(","))


def _skip(text: str | int) -> int:
    if not str(text).isdecimal():
        raise OptionsError("skip-rows-range", found=text)
    return int(text)


@dataclass(frozen=True)
class RowOptions:
    """How the rows of a table are read.

    Attributes:
        delimiter: the character between the values of a text table, whose name may then have any suffix;
            several spaces count as one. By default a comma, and a tab in files named ``.tsv``.
        header: ``none`` if the first row of a text table holds values; ``column_names`` then names the
            columns.
        column_names: names of all columns of a text table without a header.
        skip_rows: number of lines of a text table before its header, or before its first row.

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

    def __post_init__(self) -> None:
        check_choices(self)
        check_strings("column_names", self.column_names)
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise OptionsError("delimiter-form", found=self.delimiter)
        if isinstance(self.skip_rows, bool) or not isinstance(self.skip_rows, int) or self.skip_rows < 0:
            raise OptionsError("skip-rows-range", found=self.skip_rows)
        if (self.header == "none") != bool(self.column_names):
            raise OptionsError("header-names", header=self.header)

    @property
    def form(self) -> TextForm:
        """How the values of the table are written, if it is a text table."""
        return TextForm(self.delimiter, tuple(self.column_names), self.skip_rows)
