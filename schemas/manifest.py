"""The manifest ``dataset.json``, which lists the files of a dataset and describes their content.

A directory is a dataset if it has a manifest.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tfshards.schemas.compression import Compression
from tfshards.schemas.digests import DIGEST_START, HASH
from tfshards.schemas.errors import FormatError, InputError, Problem, one_line, size
from tfshards.schemas.json_reader import (
    Json,
    JsonRecord,
    WrongValueError,
    as_json,
    at,
    load_json,
    shown,
    take,
)
from tfshards.schemas.names import (
    FOLDER_PATTERN,
    ID_PATTERN,
    MANIFEST_NAME,
    REJECTS_NAME,
    REMOVED_NAME,
    id_of,
    name_fault,
    view_path_fault,
)
from tfshards.schemas.schema import Schema, repeated
from tfshards.schemas.split import Shard, Split, Totals, digest_fault
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.stored import METADATA
from tfshards.schemas.summary import (
    class_lines,
    role_lines,
    schema_lines,
    span,
    table,
)

FORMAT_VERSION = 1
# The first release of tfshards that reads FORMAT_VERSION; older releases name it in their error message.
REQUIRES = "tfshards>=0.1"


OTHER_BYTES = "its bytes have changed: the digest differs"
# Bytes at the start of a manifest, which name the release that it requires.
_HEAD = 200
_DIGEST_MARK = f'"digest": "{DIGEST_START}'
_NO_DIGEST = DIGEST_START + "0" * 64


@dataclass(frozen=True, repr=False)
class Manifest(JsonRecord):
    """The description of one dataset.

    Attributes:
        name: name of the dataset, the first part of the file name of each shard.
        build_id: hex digits, a hash of what the dataset holds, see ``content_id``.
        folder: name of the folder that this build has written. Files that did not change are in the folders
            of earlier builds, and those of other programs are where these wrote them.
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
    compression: Compression = field(default="none", kw_only=True)
    splits: Mapping[str, Split]
    totals: Totals
    options: Mapping[str, Json] = field(default_factory=dict)
    split_cuts: Mapping[str, Json] = field(default_factory=dict)
    rejects_digest: str = ""
    inputs_digest: str = ""
    removed_digest: str = ""
    views: Mapping[str, str] = field(default_factory=dict)

    optional: ClassVar[tuple[str, ...]] = ("views",)

    def __repr__(self) -> str:
        """Return a table of splits, features, classes and totals, as ``tfshards info`` prints them."""
        rows = [("split", "examples", "shards", "bytes", "examples per shard")]
        for name, split in self.splits.items():
            sizes = [shard.num_examples for shard in split.shards]
            numbers = f"{split.num_examples:,}", f"{len(sizes):,}", size(split.num_bytes), span(sizes)
            rows.append((name, *numbers))
        inside = f" in the folder {self.folder}" if self.folder else ""
        compression = "" if self.compression == "none" else f", {self.compression}"
        lines = [f"{self.name}, build {self.build_id}{inside}{compression}", *table(rows)]
        lines += [*schema_lines(self.schema), *role_lines(self.options)]
        lines += class_lines({name: split.label_counts for name, split in self.splits.items()}, self.schema)
        return "\n".join([*lines, *_totals_lines(self)])

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
        return {"format_version": FORMAT_VERSION, "requires": REQUIRES, **values}

    def fault(self) -> tuple[str, str] | None:
        """Return the place of the first fault in what the parts hold together, and its text, or None."""
        named = {"name": name_fault(self.name)}
        for name, pattern in (("build_id", ID_PATTERN), ("folder", FOLDER_PATTERN)):
            if not re.fullmatch(pattern, getattr(self, name)):
                named[name] = f"is {shown(getattr(self, name))}, must match {pattern}"
        for name in ("inputs_digest", "removed_digest", "rejects_digest"):
            named[name] = digest_fault(getattr(self, name)) if getattr(self, name) else None
        if not self.splits:
            named["splits"] = "is empty, must hold at least one split"
        if self.totals.accepted != self.num_examples:
            found = f"is {self.totals.accepted}, but the splits hold {self.num_examples} examples"
            named["totals.accepted"] = found
        for name in self.splits:
            named["splits"] = named.get("splits") or name_fault(name)
        for path, digest in self.views.items():
            named[at("views", path)] = view_path_fault(path) or digest_fault(digest)
        paths = [shard.path for shard in self.shards]
        if len(set(paths)) < len(paths):
            named["splits"] = f"lists the shard {shown(repeated(paths))} more than once"
        return next(((name, fault) for name, fault in named.items() if fault), None)


def parse_manifest(text: str, subject: str) -> Manifest:
    """Parse the text of a manifest, or raise FormatError; ``subject`` starts its message."""
    try:
        document = load_json(text)
    except ValueError as error:
        raise FormatError(subject, [Problem("(document)", f"not readable as JSON: {error}")]) from None
    if not isinstance(document, dict):
        raise FormatError(subject, [Problem("(document)", f"is {shown(document)}, must be an object")])
    version = document.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        # this release cannot check anything else in a newer document
        requires = document.get("requires")
        needed = requires if isinstance(requires, str) and requires.isprintable() else "a newer tfshards"
        message = f"is {shown(version)}, but this release reads up to {FORMAT_VERSION}; install {needed}"
        raise FormatError(subject, [Problem("format_version", message)])
    try:
        if version != FORMAT_VERSION or isinstance(version, bool):
            raise WrongValueError("format_version", f"is {shown(version)}, must be {FORMAT_VERSION}")
        if _DIGEST_MARK not in text or with_digest(text) != text:
            fault = "does not match: the manifest was changed or damaged after it was written"
            raise WrongValueError("digest", fault)
        for name in ("requires", "digest"):
            take(document.pop(name, None), str, name)
        del document["format_version"]
        manifest: Manifest = take(document, Manifest)
    except WrongValueError as error:
        raise FormatError(subject, [error.problem]) from None
    return manifest


def with_digest(text: str) -> str:
    """Return the text of a manifest with its own digest in place of the last one, which counts as 64 zeros.

    A text without a digest is returned unchanged.
    """
    before, mark, rest = text.rpartition(_DIGEST_MARK)
    if not mark:
        return text
    head, tail = before + mark, rest[64:]
    digest = HASH(f"{head}{'0' * 64}{tail}".encode("utf-8", "surrogatepass"))
    return f"{head}{digest.hexdigest()}{tail}"


def read_manifest(dataset: str | os.PathLike[str] | AnyPath) -> Manifest:
    """Read the manifest of a dataset; its ``repr`` is what ``tfshards info`` prints.

    Args:
        dataset: folder of the dataset, or its URL.

    Raises:
        OptionsError: it is a URL of a store that is not supported.
        InputError: the manifest is missing or cannot be read.
        FormatError: the manifest violates the format; the error holds the first fault with its place.
    """
    root = any_path(dataset)
    try:
        manifest = read_manifest_file(root / MANIFEST_NAME)
    except OSError as error:
        raise _no_dataset(root, error) from None
    except FormatError as error:
        [problem] = error.problems
        remedy = f"'tfshards generations {root}' lists what 'tfshards restore' can put in its place"
        raise FormatError(error.subject, [replace(problem, message=f"{problem.message}; {remedy}")]) from None
    path = root.normalized()
    if manifest.folder and manifest.folder == path.name:
        # the copy in the folder of a build, whose paths are those of the dataset
        raise InputError(f"{root} is the folder of a build in a dataset; name the dataset: {path.parent}")
    return manifest


def read_manifest_file(path: AnyPath) -> Manifest:
    """Read a manifest, which may belong to an earlier generation; it may raise FormatError or OSError."""
    try:
        # as bytes, because the digest covers line ends
        text = path.read_whole(METADATA).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(str(path), [Problem("(document)", f"is not UTF-8: {error}")]) from None
    return parse_manifest(text, str(path))


def is_manifest(path: AnyPath) -> bool:
    """Return whether tfshards wrote a manifest that cannot be read, since something in it is damaged."""
    with path.open_regular() as file:
        return b'"requires": "tfshards' in file.read(_HEAD)


def _no_dataset(root: AnyPath, error: OSError) -> InputError:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return InputError(f"{root / MANIFEST_NAME} cannot be read: {error.strerror}")
    return InputError(
        f"{root} is not a dataset, since {MANIFEST_NAME} does not exist there ({error.strerror}). Run an "
        "unfinished build again to finish it; if the file was lost, 'tfshards generations' lists what "
        "'tfshards restore' can make the dataset again",
        code="dataset-missing",
    )


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
    # the count last, since names such as "16 bits to 8" start with a number
    return lines + [f"  accepted: {one_line(name)}: {count:,}" for name, count in totals.conversions.items()]
