"""The manifest ``dataset.json``, which lists the files of a dataset and describes their content.

A directory is a dataset if it has a manifest.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import cast

from tfshards.schemas.compression import COMPRESSIONS, Compression
from tfshards.schemas.errors import FormatError, Problem, one_line
from tfshards.schemas.json_reader import Json, ObjectReader, as_json, matching, parse_json, shown
from tfshards.schemas.made import Made
from tfshards.schemas.names import (
    ID_DIGITS,
    ID_PATTERN,
    REJECTS_NAME,
    REMOVED_NAME,
    folder_fault,
    id_of,
    name_fault,
    view_path_fault,
)
from tfshards.schemas.schema import Schema
from tfshards.schemas.sizes import size
from tfshards.schemas.split import Shard, Split, Totals, digest_fault
from tfshards.schemas.summary import (
    SHOWN_CLASSES,
    class_lines,
    remedies,
    role_lines,
    schema_lines,
    span,
    table,
)

FORMAT_VERSION = 1
# The first release of tfshards that reads FORMAT_VERSION; older releases name it in their error message.
REQUIRES = "tfshards>=0.1"


_DIGEST_MARK = '"digest": "sha256:'
_NO_DIGEST = "sha256:" + "0" * 64


@dataclass(frozen=True, repr=False)
class Manifest:
    """The description of one dataset.

    Attributes:
        name: name of the dataset, the first part of the file name of each shard.
        build_id: hex digits, a hash of what the dataset holds, see ``content_id``.
        folder: name of the folder that this build has written; empty for a dataset that tfshards did not
            write. Files that did not change are in the folders of earlier builds.
        schema: features and class names of the examples.
        compression: compression of every shard.
        splits: splits by name, in the order in which they are listed.
        totals: numbers of accepted, rejected and skipped entries of the source.
        options: options of the build, as JSON values.
        split_cuts: hash values that separate splits by ratio; empty if there are none.
        rejects_digest: digest of the rejects file, as for shards; empty if nothing was rejected.
        inputs_digest: digest of the keys, sizes, labels and splits of the inputs, or of the datasets that
            this one was derived from; empty for a dataset that tfshards did not write.
        removed_digest: digest of the file of the hashes of removed keys; empty if there are none.
        views: digest of each file that follows from the manifest, such as ``labels.txt``, by path.
    """

    name: str
    build_id: str
    folder: str
    schema: Schema
    splits: Mapping[str, Split]
    totals: Totals
    options: Mapping[str, Json] = field(default_factory=dict)
    split_cuts: Mapping[str, Json] = field(default_factory=dict)
    compression: Compression = "none"
    rejects_digest: str = ""
    inputs_digest: str = ""
    removed_digest: str = ""
    views: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the text that ``tfshards info`` prints."""
        return manifest_text(self)

    @property
    def made(self) -> Made:
        """How the dataset was made, from ``options``."""
        return Made(self.options)

    @property
    def shards(self) -> tuple[Shard, ...]:
        """Shards of all splits."""
        return tuple(shard for split in self.splits.values() for shard in split.shards)

    @property
    def rejects_path(self) -> str:
        """Path of the list of rejected inputs, which exists if there are any."""
        return f"{self.folder}/{REJECTS_NAME}"

    @property
    def removed_path(self) -> str:
        """Path of the hashes of removed keys, which exists if there are any."""
        return f"{self.folder}/{REMOVED_NAME}"

    @property
    def other_digests(self) -> dict[str, str]:
        """Digests of the files that are neither shards nor their companions, by path."""
        named = {self.rejects_path: self.rejects_digest, self.removed_path: self.removed_digest}
        return {path: digest for path, digest in named.items() if digest} | dict(self.views)

    @property
    def data_paths(self) -> list[str]:
        """Paths of all files of the dataset in addition to its manifest."""
        return [*(path for shard in self.shards for path in shard.files), *self.other_digests]

    @property
    def num_examples(self) -> int:
        """Number of examples of all splits."""
        return sum(split.num_examples for split in self.splits.values())

    def content_id(self) -> str:
        """Return the build id: a hash of the options and of all records, not of paths or skipped entries."""
        shards = {name: [shard.digest for shard in split.shards] for name, split in self.splits.items()}
        kept = (
            self.name,
            self.schema,
            self.compression,
            self.options,
            self.rejects_digest,
            self.inputs_digest,
        )
        removed = [self.removed_digest] if self.removed_digest else []
        content = [[FORMAT_VERSION, *as_json(kept), *removed], [*shards.items()]]
        return id_of(json.dumps(content, sort_keys=True))

    def to_text(self) -> str:
        """Return the text of ``dataset.json``: ASCII, indented, and equal for equal manifests."""
        document = {**self.to_json(), "digest": _NO_DIGEST}
        return with_digest(json.dumps(document, indent=1, allow_nan=False) + "\n")

    def to_json(self) -> dict[str, Json]:
        """Return the manifest as JSON values, without its digest."""
        values = as_json(self) | {"splits": {name: split.to_json() for name, split in self.splits.items()}}
        if not self.views:
            del values["views"]
        ordered = {
            name: values[name] for name in ("name", "build_id", "folder", "schema", "compression", *values)
        }
        return {"format_version": FORMAT_VERSION, "requires": REQUIRES, **ordered}

    @classmethod
    def read(cls, reader: ObjectReader) -> Manifest | None:
        """Return the manifest in ``reader``, or None after noting its problems."""
        known = len(reader.problems)
        reader.only(_FIELDS)
        reader.count("format_version", least=1)
        reader.take("requires", str, "")
        name, build_id = reader.text("name", name_fault), reader.text("build_id", _build_id_fault)
        folder = reader.text("folder", folder_fault)
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
        inputs_digest = reader.take("inputs_digest", str, "")
        removed_digest = reader.take("removed_digest", str, "")
        for field_name, digest in (("inputs_digest", inputs_digest), ("removed_digest", removed_digest)):
            if digest and (fault := digest_fault(digest)):
                reader.note(field_name, fault)
        views = _read_views(reader)
        reader.text("digest", digest_fault)
        for shard in (shard for split in splits.values() for shard in split.shards):
            if compression == "none" and shard.record_bytes != shard.num_bytes:
                found = f"has {shard.num_bytes} bytes, but records of {shard.record_bytes} bytes"
                reader.note("splits", f"the shard {shown(shard.path)} {found} without compression")
        if schema is None or len(reader.problems) > known:
            return None
        return cls(
            name,
            build_id,
            folder,
            schema,
            splits,
            totals,
            options,
            split_cuts,
            cast("Compression", compression),
            rejects_digest,
            inputs_digest,
            removed_digest,
            views,
        )


# The fields of the document.
_FIELDS = ("format_version", "requires", *(each.name for each in fields(Manifest)), "digest")


def parse_manifest(text: str, subject: str) -> Manifest:
    """Parse the text of a manifest, or raise FormatError; ``subject`` starts its message."""
    document = parse_json(text, subject)
    if not isinstance(document, dict):
        raise FormatError(subject, [Problem("(document)", f"is {shown(document)}, must be an object")])
    version = document.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        # this release cannot check anything else in a newer document
        requires = document.get("requires")
        needed = requires if isinstance(requires, str) and requires.isprintable() else "a newer tfshards"
        message = f"is {shown(version)}, but this release reads up to {FORMAT_VERSION}; install {needed}"
        raise FormatError(subject, [Problem("format_version", message)])
    reader = ObjectReader(document)
    manifest = Manifest.read(reader)
    if manifest is not None and (_DIGEST_MARK not in text or with_digest(text) != text):
        reader.note("digest", "does not match: the manifest was changed or damaged after it was written")
        manifest = None
    if manifest is None:
        raise FormatError(subject, reader.problems)
    return manifest


def with_digest(text: str) -> str:
    """Return the text of a manifest with its own digest in place of the last one, which counts as 64 zeros.

    A text without a digest is returned unchanged.
    """
    before, mark, rest = text.rpartition(_DIGEST_MARK)
    if not mark:
        return text
    head, tail = before + mark, rest[64:]
    digest = hashlib.sha256(f"{head}{'0' * 64}{tail}".encode("utf-8", "surrogatepass"))
    return f"{head}{digest.hexdigest()}{tail}"


def _read_splits(reader: ObjectReader, schema: Schema | None) -> dict[str, Split]:
    splits_reader = reader.object("splits")
    splits = {name: Split.read(splits_reader.object(name), schema) for name in splits_reader.value}
    if reader.value.get("splits") == {}:
        reader.note("splits", "is empty, must hold at least one split")
    for fault in filter(None, map(name_fault, splits)):
        reader.note("splits", f"the name {fault}")
    paths = Counter(shard.path for split in splits.values() for shard in split.shards)
    for path, times in paths.items():
        if path and times > 1:
            reader.note("splits", f"the shard {shown(path)} is listed {times} times")
    return splits


def _read_views(reader: ObjectReader) -> dict[str, str]:
    """Return the digests of the views; a dataset without views does not list any."""
    if "views" not in reader.value:
        return {}
    views = reader.object("views")
    for path in views.value:
        fault = view_path_fault(path)
        if fault:
            reader.note("views", f"the path {fault}")
    return {path: views.text(path, digest_fault) for path in views.value}


_compression_fault = matching("|".join(COMPRESSIONS), " or ".join(COMPRESSIONS))
_build_id_fault = matching(ID_PATTERN, f"{ID_DIGITS} lower-case hex digits")


def manifest_text(manifest: Manifest, *, all_classes: bool = False) -> str:
    """Return a table of splits, features, classes, with their full names if all are listed, and totals."""
    compression = "" if manifest.compression == "none" else f", {manifest.compression}"
    rows = [("split", "examples", "shards", "bytes", "examples per shard")]
    for name, split in manifest.splits.items():
        sizes = [shard.num_examples for shard in split.shards]
        rows.append((name, f"{split.num_examples:,}", f"{len(sizes):,}", size(split.num_bytes), span(sizes)))
    inside = f" in the folder {manifest.folder}" if manifest.folder else ""
    lines = [f"{manifest.name}, build {manifest.build_id}{inside}{compression}", *table(rows)]
    lines += [*schema_lines(manifest.schema), *role_lines(manifest.options)]
    counts = {name: split.label_counts for name, split in manifest.splits.items()}
    lines += class_lines(counts, manifest.schema, all_classes=all_classes)
    if not all_classes and len(set().union(*counts.values())) > SHOWN_CLASSES:
        lines.append("`tfshards info DATASET --all` lists every class")
    return "\n".join([*lines, *_totals_lines(manifest)])


def _totals_lines(manifest: Manifest) -> list[str]:
    """Return lines about entries of the source: accepted, rejected and skipped ones, and conversions."""
    totals = manifest.totals
    lines = [
        f"entries: {totals.entries:,} = {totals.accepted:,} accepted + {totals.rejected:,} rejected"
        f" + {totals.skipped:,} skipped"
    ]
    for outcome, reasons in totals.reasons.items():
        lines += [f"  {outcome}: {count:,} {one_line(reason)}" for reason, count in reasons.items()]
    if manifest.rejects_digest:
        lines.append(f"  {manifest.rejects_path} lists the rejected inputs")
    remedy_of = remedies()
    for name, count in totals.conversions.items():
        remedy = f" ({remedy_of[name]})" if name in remedy_of else ""
        # the count last, since names such as "16 bits to 8" start with a number
        lines.append(f"  accepted: {one_line(name)}: {count:,}{remedy}")
    return lines
