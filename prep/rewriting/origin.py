"""Choose and change: the datasets whose records are rewritten, and what changes in a record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfshards.prep.building.commit import read_rejects, rejects_text
from tfshards.prep.records.example import with_key_prefix, with_label
from tfshards.prep.records.frames import Change, FrameReader
from tfshards.prep.sources.keys import KEY_FEATURE
from tfshards.prep.writing.area import Reject
from tfshards.schemas import Feature, InputError, Manifest, OptionsError, Schema, Shard, read_manifest
from tfshards.schemas.companions import read_index, read_keys, read_labels
from tfshards.schemas.example import decode_example
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.index import IntArray, RecordIndex
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest_file import file_problems
from tfshards.schemas.names import name_fault, rejects_name
from tfshards.schemas.storage import AnyPath, any_path

# Appended to every message about damage.
SEE_VERIFY = "tfshards verify lists all damage"


@dataclass(frozen=True)
class Origin:
    """A committed dataset whose records are copied, perhaps with changes.

    Attributes:
        root: folder of the dataset, or its URL.
        manifest: manifest of the dataset.
        split: name of the split that the whole dataset becomes; each new key is this name, ``/`` and the key
            of the example. Empty to keep splits and keys.
        new_labels: new labels by number of the record, by path of the shard.
    """

    root: AnyPath
    manifest: Manifest
    split: str = ""
    new_labels: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def has_keys(self) -> bool:
        """Whether the examples have keys."""
        return KEY_FEATURE in self.manifest.schema.features

    def index(self, shard: Shard) -> RecordIndex:
        """Return the offsets of the records of a shard."""
        index, problems = read_index(self.root, shard)
        if index is None:
            raise self._damaged(str(problems[0]))
        return index

    def frames(self, shard: Shard) -> FrameReader:
        """Return a reader of single frames of a shard, with the changes."""
        path, index = self.root / shard.path, self.index(shard)
        return FrameReader(path, self.manifest.compression, index, self._change(shard))

    def _change(self, shard: Shard) -> Change | None:
        label, labels = self.manifest.schema.label, self.new_labels.get(shard.path, {})
        if self.split and self.has_keys:
            prefix = f"{self.split}/".encode()
            return lambda _, data: with_key_prefix(data, prefix)
        if label is None or not labels:
            return None
        name = label.name

        def relabel(record: int, data: bytes) -> bytes:
            if record not in labels:
                return data
            changed = with_label(data, name, labels[record])
            if decode_example(changed) != {**decode_example(data), name: [labels[record]]}:
                raise ValueError("would change in more than its label")
            return changed

        return relabel

    def labels(self, shard: Shard) -> IntArray | None:
        """Return the label of each record of a shard; None if there are no labels."""
        if not shard.labels_digest:
            return None
        labels, problems = read_labels(self.root, shard)
        if problems:
            raise self._damaged(str(problems[0]))
        return labels

    def keys(self, shard: Shard) -> list[bytes] | None:
        """Return the new key of each record of a shard; None if there are no keys."""
        if not shard.keys_digest:
            return None
        keys, problems = read_keys(self.root, shard)
        if keys is None:
            raise self._damaged(str(problems[0]))
        prefix = f"{self.split}/".encode() if self.split else b""
        return [prefix + key for key in keys] if prefix else keys

    def rejects(self) -> list[Reject]:
        """Return the rejected inputs, with their new keys."""
        if not self.manifest.totals.rejected:
            return []
        name = rejects_name(self.manifest.build_id)
        rejects = read_rejects(self.root / name)
        if bytes_digest(rejects_text(rejects)) != self.manifest.rejects_digest:
            raise self._damaged(f"{name}: its digest differs from the manifest's")
        prefix = f"{self.split}/" if self.split else ""
        return [reject._replace(key=prefix + reject.key) for reject in rejects]

    def to_json(self) -> dict[str, Json]:
        """Return what the manifest of a derived dataset records about this one."""
        manifest = self.manifest
        split: dict[str, Json] = {"split": self.split} if self.split else {}
        options = dict(manifest.options)
        return {"name": manifest.name, "build_id": manifest.build_id, "options": options, **split}

    def _damaged(self, problem: str) -> InputError:
        return InputError("origin-damaged", root=self.root, fault=problem, see_verify=SEE_VERIFY)


def open_origin(root: str | os.PathLike[str] | AnyPath, split: str = "") -> Origin:
    """Return the dataset in ``root`` after checking the sizes of its shards."""
    fault = name_fault(split) if split else None
    if fault:
        raise OptionsError("split-name", fault=fault)
    origin = Origin(any_path(root), read_manifest(root), split)
    if problems := file_problems(origin.manifest, root):
        raise origin._damaged(str(problems[0]))
    splits = origin.manifest.splits
    if not split:
        return origin
    if len(splits) > 1:
        raise InputError("as-splits-several", root=root, splits=splits, split=split)
    return replace(origin, manifest=replace(origin.manifest, splits={split: next(iter(splits.values()))}))


def feature_difference(one: Schema, one_name: str, other: Schema, other_name: str) -> str | None:
    """Return the first feature in which two schemas differ, as a part of a sentence, or None.

    The order of features does not matter, except where it determines which feature holds the class. Names are
    those of the owners of the schemas in the message.
    """
    both = one, other
    features = [{repr(feature.name): _described(feature) for feature in schema.features} for schema in both]
    labels = [{"'label'": repr(schema.label.name)} if schema.label else {} for schema in both]
    return _difference("the feature", features, one_name, other_name) or _difference(
        "the first scalar feature of kind", labels, one_name, other_name
    )


def class_difference(one: Schema, one_name: str, other: Schema, other_name: str) -> str | None:
    """Return the first class in which two schemas differ; the arguments are as in ``feature_difference``."""
    classes = [
        {str(label): repr(name) for label, name in enumerate(schema.class_names)} for schema in (one, other)
    ]
    return _difference("class", classes, one_name, other_name)


def _difference(what: str, both: Sequence[Mapping[str, str]], one_name: str, other_name: str) -> str | None:
    one, other = both
    for name in {**one, **other}:
        found = one.get(name, "missing"), other.get(name, "missing")
        if found[0] != found[1]:
            return f"{what} {name} is {found[0]} in {one_name}, and {found[1]} in {other_name}"
    return None


def _described(feature: Feature) -> str:
    shape = ", ".join("?" if dim is None else str(dim) for dim in feature.shape)
    coordinates = f", {feature.coordinates}" if feature.coordinates else ""
    return f"({feature.kind}, {feature.dtype}, [{shape}]{coordinates}{', pixels' if feature.pixels else ''})"
