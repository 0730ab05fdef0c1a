"""What an export needs of a format, and the examples that all formats write."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.progress.threads import check_working
from tfshards.prep.records.frames import Frame, RecordError, read_frames
from tfshards.prep.records.shard_file import in_groups
from tfshards.schemas import InputError, Manifest, Problem, Schema, Shard
from tfshards.schemas.columns import Columns, UnparsedError
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.verbs import make_folder, sync

# Examples that are held in memory together, also by readers of Parquet.
_GROUP_BYTES = 32 << 20
_GROUP_ROWS = 10_000


class Part(NamedTuple):
    """A part of an export: its path in the directory, its shard, and the number of its first example."""

    path: str
    shard: Shard
    first: int


# The values of a feature in some examples, as ``Columns`` returns them; of text, strings or lists of them.
Column: TypeAlias = "npt.NDArray[Any] | list[str | list[str]]"


class Examples(NamedTuple):
    """Some examples: the number of the first one in the split, their number, and their values."""

    first: int
    num_examples: int
    columns: Mapping[str, Column]


@dataclass(frozen=True, kw_only=True)
class Format:
    """An export to one format; it is sent to every worker.

    Attributes:
        name: its name, as ``to=`` accepts it.
        text: what is written and what reads it, for the help.
        package: the package that writes the parts, on whose release their bytes depend; or empty.
        manifest: the manifest without splits: nothing that grows with the dataset.
        schema: the features that are exported.
        binary: features whose byte strings are stored as bytes instead of text.
        work: the folder for unfinished files.
    """

    name: ClassVar[str]
    text: ClassVar[str]
    package: ClassVar[str] = ""

    root: AnyPath
    directory: Path
    manifest: Manifest
    schema: Schema
    binary: frozenset[str]
    work: Path = Path()

    def path(self, split: str, number: int, total: int) -> str:
        """Return the path in the directory of a part, given its split, and its number among ``total``."""
        raise NotImplementedError

    def problems(self, splits: Collection[str]) -> list[Problem]:
        """Return what the format cannot hold of a dataset with these splits."""
        raise NotImplementedError

    def write(self, path: Path, groups: Iterator[Examples]) -> None:
        """Write examples to a new file."""
        raise NotImplementedError

    def write_part(self, part: Part) -> None:
        """Write one part, which gets its name when it is complete."""
        path = self.directory / part.path
        # a runner that starts its job again after a failure repeats every task
        if not path.exists():
            unfinished = self.work / f"{path.name}.{secrets.token_hex(8)}"
            self.write(unfinished, self._read(part))
            sync(unfinished)
            make_folder(path.parent)
            unfinished.replace(path)

    def _read(self, part: Part) -> Iterator[Examples]:
        """Yield the examples of a part in order, and check at the end that they are those of the manifest."""
        path, parser = self.root / part.shard.path, Columns(self.schema.features)
        lengths: list[int] = []
        checksums: list[int] = []
        frames = read_frames(path, self.manifest.compression)
        for group in in_groups(frames, lambda each: len(each.require_data(path)), _GROUP_BYTES, _GROUP_ROWS):
            records = [each.require_data(path) for each in group]
            try:
                columns: dict[str, Column] = {**parser.parse_records(records)}
            except UnparsedError as error:
                found = group[error.row]
                raise RecordError(path, found.number, found.offset, str(error)) from None
            for feature in self.schema.features:
                if feature.is_text and feature.name not in self.binary:
                    columns[feature.name] = self._texts(feature.name, columns[feature.name], group, path)
            yield Examples(part.first + len(lengths), len(group), columns)
            lengths += map(len, records)
            checksums += [each.checksum for each in group]
            check_working(self.work)
        shard = part.shard
        digest = examples_digest(np.array(lengths, np.int64), np.array(checksums, np.uint32))
        if (len(lengths), digest) != (shard.num_examples, shard.examples_digest):
            raise InputError(
                "export-miscounted", path=path, num_lengths=len(lengths), num_examples=shard.num_examples
            )

    def _texts(
        self, name: str, values: Column, group: Sequence[Frame], path: AnyPath
    ) -> list[str | list[str]]:
        """Return byte strings, or lists of them, as text; raise InputError if one is not UTF-8."""
        texts: list[str | list[str]] = []
        for found, value in zip(group, values, strict=True):
            try:
                is_one = isinstance(value, bytes)
                texts.append(value.decode() if is_one else [each.decode() for each in np.ravel(value)])
            except UnicodeDecodeError:
                record, folder = found.number, self.directory
                raise InputError(
                    "export-not-text", name=name, path=path, record=record, directory=folder
                ) from None
        return texts

    def dtype_problems(self, dtypes: Sequence[str], fault: str) -> list[Problem]:
        """Return a problem for each numeric feature of a dtype that the format does not have."""
        numbers = [each for each in self.schema.features if each.dtype in dtypes and not each.is_encoded]
        return [Problem(each.name, f"is {each.dtype}{fault}") for each in numbers]
