"""The manifest ``dataset.json``: which files are the dataset, and what is in them.

A directory with a manifest is a dataset; one without is none. Nothing here knows how shards are made or read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tfshards.schemas.errors import FormatError, InputError, Problem
from tfshards.schemas.reading import Json, ObjectReader, parse_json
from tfshards.schemas.schema import Schema

MANIFEST_NAME = "dataset.json"
FORMAT_VERSION = 1
# The first release of tfshards that reads FORMAT_VERSION; an older one names it in its error.
REQUIRES = "tfshards>=0.1"

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BUILD_ID = re.compile(r"[0-9a-f]{8}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]*(-[A-Za-z0-9_.]+)*")


@dataclass(frozen=True)
class Shard:
    """One TFRecord file.

    Attributes:
        path: relative to the dataset's directory, with ``/`` between the parts.
        num_examples: the number of records.
        num_bytes: the file's size.
        digest: ``sha256:`` and 64 hex digits, over the whole file.
    """

    path: str
    num_examples: int
    num_bytes: int
    digest: str


@dataclass(frozen=True)
class Split:
    """One split: its shards in order, and how often each class occurs.

    Attributes:
        shards: in the order in which their examples are numbered.
        label_counts: examples by class name, or by the class's number where the classes have no names, in
            label order; empty where there is no label.
    """

    shards: tuple[Shard, ...]
    label_counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return sum(shard.num_examples for shard in self.shards)

    @property
    def num_bytes(self) -> int:
        """The size of all shards together."""
        return sum(shard.num_bytes for shard in self.shards)


@dataclass(frozen=True)
class Totals:
    """What became of the entries that the source holds; ``accepted + rejected + skipped == entries``.

    Attributes:
        entries: everything that is not a directory, found without following links; for arrays the rows.
        accepted: the examples of all splits.
        rejected: the number of lines in the rejects file.
        skipped: what is no input, such as hidden files.
        reasons: counts by reason, for ``rejected`` and for ``skipped``.
    """

    entries: int
    accepted: int
    rejected: int = 0
    skipped: int = 0
    reasons: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


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
    """

    name: str
    build_id: str
    schema: Schema
    splits: Mapping[str, Split]
    totals: Totals
    options: Mapping[str, Json] = field(default_factory=dict)
    split_cuts: Mapping[str, Json] = field(default_factory=dict)

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
        return json.dumps(self.to_json(), indent=1) + "\n"

    def to_json(self) -> dict[str, Json]:
        """Return the manifest as JSON values."""
        totals = self.totals
        return {
            "format_version": FORMAT_VERSION,
            "requires": REQUIRES,
            "name": self.name,
            "build_id": self.build_id,
            "schema": self.schema.to_json(),
            "splits": {name: _split_json(split) for name, split in self.splits.items()},
            "totals": {
                "entries": totals.entries,
                "accepted": totals.accepted,
                "rejected": totals.rejected,
                "skipped": totals.skipped,
                "reasons": {outcome: dict(counts) for outcome, counts in totals.reasons.items()},
            },
            "options": dict(self.options),
            "split_cuts": dict(self.split_cuts),
        }


def read_manifest(root: str | os.PathLike[str]) -> Manifest:
    """Return the manifest of the dataset in the directory ``root``.

    Raises:
        InputError: there is no manifest, so that ``root`` is no dataset.
        FormatError: the manifest breaks the format; it holds every problem, each with its place.
    """
    path = Path(root) / MANIFEST_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(_no_dataset(Path(root))) from None
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
        raise FormatError(subject, [Problem("(document)", "must be an object")])
    reader = ObjectReader(document)
    version = reader.count("format_version")
    if version > FORMAT_VERSION:
        needed = document.get("requires", "a newer tfshards")
        message = f"is {version}, this release reads up to {FORMAT_VERSION}; install {needed}"
        raise FormatError(subject, [Problem("format_version", message)])
    if version < 1 and not reader.problems:
        reader.note("format_version", f"is {version}, the first is 1")
    manifest = _read_document(reader)
    if reader.problems:
        raise FormatError(subject, reader.problems)
    return manifest


def write_manifest(manifest: Manifest, root: str | os.PathLike[str]) -> None:
    """Write the manifest into the directory ``root``, in one step that a reader sees whole or not at all."""
    write_atomically(Path(root) / MANIFEST_NAME, manifest.to_text().encode("ascii"))


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that no reader and no crash sees a part of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in the directory ``path`` last through a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def _no_dataset(root: Path) -> str:
    if not root.exists():
        return f"{root} does not exist"
    return f"{root} is no dataset: it has no {MANIFEST_NAME}. A build that was stopped continues when the same command runs again"


def _split_json(split: Split) -> Json:
    return {
        "num_examples": split.num_examples,
        "label_counts": dict(split.label_counts),
        "shards": [
            {
                "path": shard.path,
                "num_examples": shard.num_examples,
                "num_bytes": shard.num_bytes,
                "digest": shard.digest,
            }
            for shard in split.shards
        ],
    }


def _read_document(reader: ObjectReader) -> Manifest:
    reader.only(
        (
            "format_version",
            "requires",
            "name",
            "build_id",
            "schema",
            "splits",
            "totals",
            "options",
            "split_cuts",
        )
    )
    reader.take("requires", str, "")
    name, build_id = reader.take("name", str, "x"), reader.take("build_id", str, "00000000")
    if not _NAME.fullmatch(name):
        reader.note("name", f"is {name!r}; {NAME_RULE}")
    if not _BUILD_ID.fullmatch(build_id):
        reader.note("build_id", f"is {build_id!r}, must be 8 hex digits")
    schema = Schema.read(reader.object("schema"))
    splits_reader = reader.object("splits")
    splits = {name: _read_split(splits_reader.object(name), schema) for name in splits_reader.value}
    if not splits:
        splits_reader.note("", "is empty; a dataset has at least one split")
    manifest = Manifest(
        name,
        build_id,
        schema,
        splits,
        _read_totals(reader.object("totals")),
        reader.take("options", dict, {}),
        reader.take("split_cuts", dict, {}),
    )
    if manifest.totals.accepted != manifest.num_examples:
        message = f"is {manifest.totals.accepted}, but the splits hold {manifest.num_examples} examples"
        reader.note("totals.accepted", message)
    paths = [shard.path for shard in manifest.shards]
    for path in sorted(
        {path for path in paths if paths.count(path) > 1} if len(set(paths)) < len(paths) else ()
    ):
        reader.note("splits", f"the shard {path!r} stands twice")
    return manifest


def _read_split(reader: ObjectReader, schema: Schema) -> Split:
    reader.only(("num_examples", "label_counts", "shards"))
    split = Split(
        tuple(_read_shard(item) for item in reader.objects("shards")),
        reader.counts("label_counts"),
    )
    stated = reader.count("num_examples")
    if stated != split.num_examples:
        reader.note("num_examples", f"is {stated}, but the shards hold {split.num_examples}")
    if not split.shards:
        reader.note("shards", "is empty; a split has at least one shard")
    labelled = sum(split.label_counts.values())
    if split.label_counts and labelled != split.num_examples:
        reader.note(
            "label_counts", f"adds up to {labelled}, but the split holds {split.num_examples} examples"
        )
    if schema.class_names:
        for name in sorted(set(split.label_counts) - set(schema.class_names)):
            reader.note("label_counts", f"names the class {name!r}, which the schema lacks")
    return split


def _read_shard(reader: ObjectReader) -> Shard:
    reader.only(("path", "num_examples", "num_bytes", "digest"))
    path, digest = reader.take("path", str, ""), reader.take("digest", str, "")
    fault = _path_fault(path)
    if fault and "path" in reader.value:
        reader.note("path", f"is {path!r}, {fault}")
    if not _DIGEST.fullmatch(digest) and "digest" in reader.value:
        reader.note("digest", f"is {digest!r}, must be 'sha256:' and 64 hex digits")
    return Shard(path, reader.count("num_examples"), reader.count("num_bytes"), digest)


def _path_fault(path: str) -> str | None:
    parts = PurePosixPath(path).parts
    if not path or path.startswith("/") or "\\" in path or "\0" in path or ":" in path:
        return "must be a relative path with / between its parts"
    if ".." in parts or str(PurePosixPath(path)) != path:
        return "must not contain '..', '.' or empty parts"
    return None


def _read_totals(reader: ObjectReader) -> Totals:
    reader.only(("entries", "accepted", "rejected", "skipped", "reasons"))
    reasons_reader = reader.object("reasons")
    totals = Totals(
        reader.count("entries"),
        reader.count("accepted"),
        reader.count("rejected"),
        reader.count("skipped"),
        {outcome: reasons_reader.counts(outcome) for outcome in reasons_reader.value},
    )
    together = totals.accepted + totals.rejected + totals.skipped
    if together != totals.entries:
        reader.note("entries", f"is {totals.entries}, but accepted + rejected + skipped is {together}")
    reasons_reader.only(("rejected", "skipped"))
    for outcome, stated in (("rejected", totals.rejected), ("skipped", totals.skipped)):
        counted = sum(totals.reasons.get(outcome, {}).values())
        if counted != stated:
            reasons_reader.note(outcome, f"adds up to {counted}, but totals.{outcome} is {stated}")
    return totals


NAME_RULE = "must be letters, digits, '_', '.' and single '-', starting with a letter or digit"


def name_fault(name: str) -> str | None:
    """Return what is wrong with ``name`` as the name of a dataset or split, or None."""
    return None if _NAME.fullmatch(name) else f"{name!r} {NAME_RULE}"
