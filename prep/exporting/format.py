"""What an export needs of a format, and the examples that all formats write."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias, cast

import numpy as np

from tfshards.prep.progress.lines import Reporter
from tfshards.prep.records.example import Values, as_encoded
from tfshards.prep.records.frames import RecordError, read_frames
from tfshards.prep.records.values import parse_record
from tfshards.schemas import Feature, InputError, Manifest, Problem, Schema
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.verbs import make_folder, sync

# Examples between two reports of progress.
_EXAMPLES = 256


class Part(NamedTuple):
    """One shard, as workers need it: ``number`` and ``first``, its first example, count in its split."""

    split: str
    number: int
    total: int
    first: int
    shard: str
    num_examples: int
    num_bytes: int
    examples_digest: str


# Bytes for an image, a mask and kind ``raw``, one element, or a list of them; byte strings may be text.
Content: TypeAlias = "Values | str | list[str]"


class Example(NamedTuple):
    """One example of an export, with its number in the split."""

    number: int
    num_bytes: int
    values: dict[str, Content]


@dataclass(frozen=True, kw_only=True)
class Format:
    """An export to one format; it is sent to every worker.

    Attributes:
        name: its name, as ``to=`` accepts it.
        text: what is written and what reads it, for the help.
        package: the package that writes the parts, on whose release their bytes depend; or empty.
        schema: the features that are exported.
        binary: features whose byte strings are stored as bytes instead of text.
        work: the folder for unfinished files.
    """

    name: ClassVar[str]
    text: ClassVar[str]
    package: ClassVar[str] = ""

    root: AnyPath
    directory: Path
    work: Path
    manifest: Manifest
    schema: Schema
    binary: frozenset[str] = frozenset()
    reporter: Reporter = field(default_factory=Reporter)

    def path(self, part: Part) -> str:
        """Return the path of a part in the directory."""
        raise NotImplementedError

    def problems(self) -> list[Problem]:
        """Return what the format cannot hold of the dataset."""
        raise NotImplementedError

    def write(self, path: Path, examples: Iterator[Example]) -> None:
        """Write examples to a new file."""
        raise NotImplementedError

    def write_part(self, part: Part) -> None:
        """Write one part, which gets its name when it is complete."""
        path = self.directory / self.path(part)
        # a runner that starts its job again after a failure repeats every task
        if not path.exists():
            unfinished = self.work / f"{path.name}.{secrets.token_hex(8)}"
            self.write(unfinished, self.examples(part))
            sync(unfinished)
            make_folder(path.parent)
            unfinished.replace(path)

    def examples(self, part: Part) -> Iterator[Example]:
        """Yield the examples of a part in order, after checking each, and at the end all together."""
        path = self.root / part.shard
        texts = [
            each for each in self.schema.features if each.kind == "bytes" and each.name not in self.binary
        ]
        lengths: list[int] = []
        checksums: list[int] = []
        for found in read_frames(path, self.manifest.compression):
            data = found.require_data(path)
            values, fault = parse_record(data, self.manifest)
            if fault:
                raise RecordError(path, found.number, found.offset, fault)
            lengths.append(len(data))
            checksums.append(found.checksum)
            if not len(lengths) % _EXAMPLES:
                self.reporter.report(_EXAMPLES, sum(lengths[-_EXAMPLES:]))
            exported: dict[str, Content] = {
                each.name: as_encoded(each, values[each.name]) for each in self.schema.features
            }
            try:
                for feature in texts:
                    exported[feature.name] = _text_of(exported[feature.name])
            except UnicodeDecodeError:
                name, folder = feature.name, self.directory
                raise InputError(
                    "export-not-text", name=name, path=path, record=found.number, directory=folder
                ) from None
            yield Example(part.first + found.number, len(data), exported)
        rest = len(lengths) % _EXAMPLES
        self.reporter.report(rest, sum(lengths[len(lengths) - rest :]))
        digest = examples_digest(np.array(lengths, np.int64), np.array(checksums, np.uint32))
        if (len(lengths), digest) != (part.num_examples, part.examples_digest):
            raise InputError(
                "export-miscounted", path=path, num_lengths=len(lengths), num_examples=part.num_examples
            )

    def dtype_problems(self, dtypes: Sequence[str], fault: str) -> list[Problem]:
        """Return a problem for each numeric feature of a dtype that the format does not have."""
        numbers = [each for each in self.schema.features if each.dtype in dtypes and not each.is_encoded]
        return [Problem(each.name, f"is {each.dtype}{fault}") for each in numbers]


def array_of(feature: Feature, value: Content) -> np.ndarray:
    """Return the value of a numeric feature as an array; a ragged one is ``(n,)`` or ``(n, k)``."""
    if feature.kind == "raw":
        array = np.frombuffer(cast("bytes", value), np.dtype(feature.dtype).newbyteorder("<"))
        array = array.astype(feature.dtype, copy=False)
    else:
        array = np.array(value, feature.dtype)
    return array.reshape([-1 if dim is None else dim for dim in feature.shape])


def _text_of(value: Content) -> str | list[str]:
    """Return a byte string, or a list of them, as text; raise UnicodeDecodeError if one is not UTF-8."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return [each.decode("utf-8") for each in cast("Sequence[bytes]", value)]
