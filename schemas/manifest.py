"""The manifest ``dataset.json``: which files are the dataset, and what is in them.

A directory with a manifest is a dataset; one without is none. Nothing here knows how shards are made or read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from tfshards.schemas.atomic import sync_directory, write_atomically
from tfshards.schemas.errors import FormatError, InputError, Problem
from tfshards.schemas.names import MANIFEST_NAME, name_fault
from tfshards.schemas.reading import Json, ObjectReader, parse_json, shown
from tfshards.schemas.schema import Schema
from tfshards.schemas.split import Shard, Split, digest_fault

__all__ = [
    "FORMAT_VERSION",
    "MANIFEST_NAME",
    "REQUIRES",
    "Compression",
    "Manifest",
    "Shard",
    "Split",
    "Totals",
    "file_problems",
    "name_fault",
    "parse_manifest",
    "read_manifest",
    "sync_directory",
    "with_digest",
    "write_atomically",
    "write_manifest",
]

FORMAT_VERSION = 1
# The first release of tfshards that reads FORMAT_VERSION; an older one names it in its error.
REQUIRES = "tfshards>=0.1"

Compression = Literal["none", "gzip"]

_DIGEST_MARK = '"digest": "sha256:'
_NO_DIGEST = "sha256:" + "0" * 64
_BUILD_ID = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True)
class Totals:
    """What became of the entries that the source holds; ``accepted + rejected + skipped == entries``.

    Attributes:
        entries: everything that is not a directory, found without following links; for arrays the rows.
        accepted: the examples of all splits.
        rejected: the number of lines in the rejects file.
        skipped: what is no input, such as hidden files.
        reasons: counts by reason, for ``rejected`` and for ``skipped``.
        conversions: what was done to accepted images, such as ``orientation applied``, and to how many.
    """

    entries: int
    accepted: int
    rejected: int = 0
    skipped: int = 0
    reasons: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    conversions: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Return the totals as they stand in ``dataset.json``."""
        return {
            "entries": self.entries,
            "accepted": self.accepted,
            "rejected": self.rejected,
            "skipped": self.skipped,
            "reasons": {outcome: dict(counts) for outcome, counts in self.reasons.items()},
            "conversions": dict(self.conversions),
        }

    @classmethod
    def read(cls, reader: ObjectReader) -> Totals:
        """Return the totals in ``reader``, after noting what is wrong with them."""
        reader.only(("entries", "accepted", "rejected", "skipped", "reasons", "conversions"))
        entries, accepted, rejected, skipped = (
            reader.count(name) for name in ("entries", "accepted", "rejected", "skipped")
        )
        together = accepted + rejected + skipped
        if together != entries:
            reader.note("entries", f"is {entries}, but accepted + rejected + skipped is {together}")
        outcomes = reader.object("reasons")
        stated = {"rejected": rejected, "skipped": skipped}
        outcomes.only(stated)
        reasons = {outcome: outcomes.counts(outcome) for outcome in outcomes.value if outcome in stated}
        for outcome, total in stated.items():
            counted = sum(reasons.get(outcome, {}).values())
            if counted != total:
                outcomes.note(outcome, f"adds up to {counted}, but totals.{outcome} is {total}")
        return cls(entries, accepted, rejected, skipped, reasons, reader.counts("conversions"))


@dataclass(frozen=True)
class Manifest:
    """Everything that belongs to one dataset.

    Attributes:
        name: the dataset's name, the first part of each shard's file name.
        build_id: 8 hex digits, equal for equal inputs and options.
        schema: what each example holds.
        splits: by name, in the order in which they are listed.
        totals: what became of the source's entries.
        options: the options that made the dataset, as JSON values.
        split_cuts: the hash values at which ratio splits were cut; empty where there were none.
        compression: of every shard.
        rejects_digest: of the rejects file, as those of shards; empty where there is none.
    """

    name: str
    build_id: str
    schema: Schema
    splits: Mapping[str, Split]
    totals: Totals
    options: Mapping[str, Json] = field(default_factory=dict)
    split_cuts: Mapping[str, Json] = field(default_factory=dict)
    compression: Compression = "none"
    rejects_digest: str = ""

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards of all splits."""
        return tuple(shard for split in self.splits.values() for shard in split.shards)

    @property
    def num_examples(self) -> int:
        """The number of examples of all splits."""
        return sum(split.num_examples for split in self.splits.values())

    def to_text(self) -> str:
        """Return the text of ``dataset.json``: ASCII, indented, the same for equal manifests."""
        document = {**self.to_json(), "digest": _NO_DIGEST}
        return with_digest(json.dumps(document, indent=1, allow_nan=False) + "\n")

    def to_json(self) -> dict[str, Json]:
        """Return the manifest as JSON values, without its own digest."""
        return {
            "format_version": FORMAT_VERSION,
            "requires": REQUIRES,
            "name": self.name,
            "build_id": self.build_id,
            "schema": self.schema.to_json(),
            "compression": self.compression,
            "splits": {name: split.to_json() for name, split in self.splits.items()},
            "totals": self.totals.to_json(),
            "options": dict(self.options),
            "split_cuts": dict(self.split_cuts),
            "rejects_digest": self.rejects_digest,
        }

    @classmethod
    def read(cls, reader: ObjectReader) -> Manifest | None:
        """Return the manifest in ``reader``, or None after noting what is wrong with it."""
        known = len(reader.problems)
        reader.only(_FIELDS)
        reader.count("format_version", least=1)
        reader.take("requires", str, "")
        name, build_id = reader.text("name", name_fault), reader.text("build_id", _build_id_fault)
        schema = Schema.read(reader.object("schema"))
        compression = reader.text("compression", _compression_fault)
        splits = _read_splits(reader, schema)
        totals = Totals.read(reader.object("totals"))
        options, split_cuts = reader.take("options", dict, {}), reader.take("split_cuts", dict, {})
        num_examples = sum(split.num_examples for split in splits.values())
        if totals.accepted != num_examples:
            message = f"is {totals.accepted}, but the splits hold {num_examples} examples"
            reader.note("totals.accepted", message)
        rejects_digest = reader.take("rejects_digest", str, "")
        fault = digest_fault(rejects_digest) if totals.rejected else None
        if fault or (rejects_digest and not totals.rejected):
            reader.note("rejects_digest", fault or "is given, but totals.rejected is 0")
        reader.text("digest", digest_fault)
        if compression == "none":
            _note_compressed(reader, splits)
        if schema is None or len(reader.problems) > known:
            return None
        return cls(
            name,
            build_id,
            schema,
            splits,
            totals,
            options,
            split_cuts,
            "gzip" if compression == "gzip" else "none",
            rejects_digest,
        )


def read_manifest(root: str | os.PathLike[str]) -> Manifest:
    """Return the manifest of the dataset in the directory ``root``.

    Raises:
        InputError: there is no manifest that can be read, so that ``root`` is no dataset.
        FormatError: the manifest breaks the format; it holds every problem, each with its place.
    """
    path = Path(root) / MANIFEST_NAME
    try:
        # as bytes: line ends are part of what the digest covers
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(_no_dataset(Path(root), error)) from None
    except UnicodeDecodeError as error:
        raise FormatError(str(path), [Problem("(document)", f"is not UTF-8: {error}")]) from None
    return parse_manifest(text, str(path))


def parse_manifest(text: str, subject: str) -> Manifest:
    """Return the manifest in ``text``.

    Raises:
        FormatError: as for ``read_manifest``; its message starts with ``subject``.
    """
    document = parse_json(text, subject)
    if not isinstance(document, dict):
        raise FormatError(subject, [Problem("(document)", f"is {shown(document)}, must be an object")])
    version = document.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        # nothing else in a newer document can be judged here
        requires = document.get("requires")
        needed = requires if isinstance(requires, str) and requires.isprintable() else "a newer tfshards"
        message = f"is {shown(version)}, this release reads up to {FORMAT_VERSION}; install {needed}"
        raise FormatError(subject, [Problem("format_version", message)])
    reader = ObjectReader(document)
    manifest = Manifest.read(reader)
    if manifest is not None and (_DIGEST_MARK not in text or with_digest(text) != text):
        reader.note("digest", "does not hold: the manifest was changed, or damaged, after it was written")
        manifest = None
    if manifest is None:
        raise FormatError(subject, reader.problems)
    return manifest


def with_digest(text: str) -> str:
    """Return the text of a manifest with its own digest: of the text that has 64 zeros in its place.

    It stands at the last place where the text has ``"digest": "sha256:``, followed by 64 characters. A text
    without that place comes back as it is.
    """
    before, mark, rest = text.rpartition(_DIGEST_MARK)
    if not mark:
        return text
    head, tail = before + mark, rest[64:]
    digest = hashlib.sha256(f"{head}{'0' * 64}{tail}".encode("utf-8", "surrogatepass"))
    return f"{head}{digest.hexdigest()}{tail}"


def write_manifest(manifest: Manifest, root: str | os.PathLike[str]) -> None:
    """Write the manifest into the directory ``root``, in one step that a reader sees whole or not at all.

    Raises:
        FormatError: the manifest is one that nobody would read; nothing is written.
        OSError: the file cannot be written; an earlier manifest still stands.
    """
    path, text = Path(root) / MANIFEST_NAME, manifest.to_text()
    parse_manifest(text, str(path))
    write_atomically(path, text.encode("ascii"))


def file_problems(manifest: Manifest, root: str | os.PathLike[str]) -> list[Problem]:
    """Return a problem for each shard whose file is missing or of another size than the manifest says."""
    problems = []
    for shard in manifest.shards:
        try:
            size = (Path(root) / shard.path).stat().st_size
        except OSError as error:
            problems.append(Problem(shard.path, f"cannot be read: {error.strerror}"))
            continue
        if size != shard.num_bytes:
            problems.append(Problem(shard.path, f"has {size} bytes, the manifest says {shard.num_bytes}"))
    return problems


_FIELDS = (
    "format_version",
    "requires",
    "name",
    "build_id",
    "schema",
    "compression",
    "splits",
    "totals",
    "options",
    "split_cuts",
    "rejects_digest",
    "digest",
)


def _read_splits(reader: ObjectReader, schema: Schema | None) -> dict[str, Split]:
    splits_reader = reader.object("splits")
    splits = {name: Split.read(splits_reader.object(name), schema) for name in splits_reader.value}
    if reader.value.get("splits") == {}:
        reader.note("splits", "is empty, must hold at least one")
    for fault in filter(None, map(name_fault, splits)):
        reader.note("splits", f"the name {fault}")
    paths = Counter(shard.path for split in splits.values() for shard in split.shards)
    for path, times in paths.items():
        if path and times > 1:
            reader.note("splits", f"the shard {shown(path)} stands {times} times")
    return splits


def _note_compressed(reader: ObjectReader, splits: Mapping[str, Split]) -> None:
    for split in splits.values():
        for shard in split.shards:
            if shard.record_bytes != shard.num_bytes:
                found = f"{shard.num_bytes} bytes with records of {shard.record_bytes}"
                reader.note("splits", f"the shard {shown(shard.path)} has {found}, without compression")


def _compression_fault(compression: str) -> str | None:
    allowed = get_args(Compression)
    return None if compression in allowed else f"is {shown(compression)}, must be {' or '.join(allowed)}"


def _build_id_fault(build_id: str) -> str | None:
    sound = _BUILD_ID.fullmatch(build_id)
    return None if sound else f"is {shown(build_id)}, must be 8 lower-case hex digits"


def _no_dataset(root: Path, error: OSError) -> str:
    if not os.path.exists(root):
        return f"{root} does not exist"
    if not os.path.isdir(root):
        return f"{root} is a file; name the directory that holds {MANIFEST_NAME}"
    if isinstance(error, FileNotFoundError):
        return (
            f"{root} is no dataset: it has no {MANIFEST_NAME}. "
            "A build that was stopped continues when the same command runs again"
        )
    return f"{root / MANIFEST_NAME} cannot be read: {error.strerror}"
