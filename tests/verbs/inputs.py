"""Inputs that grow: photos in folders, a table of images, and arrays, each made from a list of rows."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from tests.pictures import STAMP, image_file
from tests.pictures import write as write_file
from tfshards.prep import Arrays, ImageFolder, Options, Table
from tfshards.prep.sources.base import Source

RATIOS = {"train": "0.7", "val": "0.3"}


@dataclass(frozen=True)
class Row:
    """One input; ``number`` gives its pixel, its name and its split."""

    number: int
    label: str

    @property
    def split(self) -> str:
        """The split of a table's row."""
        return ("val", "train", "train")[self.number % 3]

    @property
    def pixel(self) -> tuple[int, int, int]:
        """A color that no other row has."""
        return self.number % 256, self.number // 256, 77

    def png(self) -> bytes:
        """Return a file of one pixel."""
        return image_file(np.array([[self.pixel]], np.uint8))


@dataclass
class Inputs:
    """Inputs of one kind, whose files are in ``folder``.

    Attributes:
        ratios: shares of the splits, if the source does not name the splits.
        keys_follow_rows: whether a source of only some rows has other keys.
    """

    folder: Path
    ratios: ClassVar[dict[str, str]] = {}
    keys_follow_rows: ClassVar[bool] = False

    def options(self, compression: str) -> Options:
        """Return the options of a build."""
        return Options(splits=self.ratios, max_rejected=1, name="data", compression=compression)

    def source(self, rows: list[Row], classes: list[str] | None = None) -> Source:
        """Return the source of these rows, by default with the class names that they have."""
        raise NotImplementedError

    def paths(self, rows: list[Row]) -> list[str]:
        """Return the inputs of these rows as the command line names them."""
        raise NotImplementedError

    def key(self, row: Row) -> str:
        """Return the key of a row."""
        raise NotImplementedError

    def example(self, row: Row) -> dict[str, object]:
        """Return what a reader finds, except the key, with the name of the class."""
        return {"image": [[[*row.pixel]]], "label": row.label}

    def rejected(self, rows: list[Row]) -> frozenset[str]:
        """Return the keys of the inputs beside these rows that are rejected."""
        return frozenset()

    def split(self, row: Row, cuts: dict) -> str:
        """Return the split of a row, as docs/format.md describes it where a ratio decides."""
        if not self.ratios:
            return row.split
        seed, key = str(cuts["seed"]).encode(), self.key(row).encode()
        own = hashlib.blake2b(key, digest_size=16, key=seed, person=b"tfshards-split").hexdigest()
        return cuts["splits"][sum(cut <= own for cut in cuts["cuts"]["all"])]


class Photos(Inputs):
    """A folder of classes with some files that are not images; ratios give the splits."""

    ratios: ClassVar = RATIOS

    def rejected(self, rows):
        return frozenset(f"cat/bad-{row.number}.png" for row in rows if row.number % 16 == 0)

    def key(self, row):
        return f"{row.label}/{row.number:03}.png"

    def paths(self, rows):
        root = self.folder / f"photos-{rows[0].number}-{len(rows)}"
        for row in rows:
            write(root / self.key(row), row.png())
        for key in self.rejected(rows):
            write(root / key, b"no image")
        return [str(root)]

    def source(self, rows, classes=None):
        (root,) = self.paths(rows)
        source = ImageFolder(root)
        return source.with_class_names(classes) if classes else source


class Rows(Inputs):
    """A table with the class and the split of each image."""

    def key(self, row):
        return f"{row.number:03}.png"

    def paths(self, rows):
        for row in rows:
            write(self.folder / "images" / self.key(row), row.png())
        lines = [f"{self.key(row)},{row.label},{row.split}" for row in rows]
        table = self.folder / f"table-{rows[0].number}-{len(rows)}.csv"
        write(table, "\n".join(["file_name,label,split", *lines, ""]).encode())
        return [str(table), str(self.folder / "images")]

    def source(self, rows, classes=None):
        table, root = self.paths(rows)
        return Table(table, root=root, class_names=classes)


class Numbers(Inputs):
    """Arrays, whose keys are the numbers of their rows, in one split."""

    keys_follow_rows: ClassVar = True

    def key(self, row):
        return str(row.number)

    def split(self, row, cuts):
        return "train"

    def example(self, row):
        return {"x": [row.number, -row.number], "label": row.label}

    def arrays(self, rows):
        x = np.array([[row.number, -row.number] for row in rows], np.int16)
        return {"x": x, "label": np.array([row.label for row in rows])}

    def paths(self, rows):
        found = []
        for name, array in self.arrays(rows).items():
            path = self.folder / f"{name}-{len(rows)}-{rows[0].number}.npy"
            np.save(path, array)
            os.utime(path, ns=(STAMP, STAMP))
            found.append(f"{name}={path}")
        return found

    def source(self, rows, classes=None):
        return Arrays(self.arrays(rows), class_names=classes)


KINDS = {"photos": Photos, "table": Rows, "arrays": Numbers}


def write(path: Path, content: bytes) -> None:
    """Write a file with a fixed time, unless it is there."""
    if not path.exists():
        write_file(path, content)
