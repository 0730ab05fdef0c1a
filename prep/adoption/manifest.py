"""Compute the manifest of adopted files from what their records hold."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tfshards.prep.adoption.infer import Inferred, infer, label_faults
from tfshards.prep.adoption.record_files import ChosenFiles
from tfshards.prep.adoption.seen import FeatureRoles, Findings
from tfshards.prep.adoption.split_names import parse_globs
from tfshards.prep.adoption.tfds import tfds_class_names, tfds_folders, tfds_name
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.sources.classes import check_class_names, read_class_names
from tfshards.prep.views.tfds import FEATURES_NAME
from tfshards.schemas import InputError, Manifest, OptionsError, Problem, Schema, Shard, Split, Totals
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.index import keys_bytes, keys_path, labels_bytes, labels_path
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import id_of, name_fault
from tfshards.schemas.option import option
from tfshards.schemas.storage import AnyPath

SOURCE = "adopt"


@dataclass(frozen=True)
class AdoptOptions:
    """Options that complete or replace what is derived from TFRecord files and their records.

    Attributes:
        name: the dataset's name; by default its name in TFDS, or the name of the folder.
        splits: for each split, the pattern that the paths of its files match (``*`` also matches ``/``);
            by default derived from the paths. Files that match no pattern are skipped.
        class_names: the names of the classes in label order; by default TFDS's, if any.
        roles: roles of features that their values do not show.
        allow_missing: accept files that are missing according to the numbers of the others.

    Raises:
        OptionsError: a name is not allowed.
    """

    name: str | None = option(
        None, "name of the dataset", default_text="its name in TFDS, or the name of the folder"
    )
    splits: Mapping[str, str] = option(
        {},
        "files of a split, such as train='train-*'; other files are skipped",
        flag="split",
        metavar="NAME=GLOB",
        is_repeatable=True,
        parse=parse_globs,
        default_text="derived from the names of folders and files",
    )
    class_names: Sequence[str] | None = option(
        None,
        "file with the class names in label order, one per line",
        metavar="FILE",
        parse=read_class_names,
        default_text="TFDS's, if any",
    )
    roles: FeatureRoles = field(default_factory=FeatureRoles)
    allow_missing: bool = option(False, "accept that files of a numbered series are missing")

    def __post_init__(self) -> None:
        for fault in filter(None, map(name_fault, self.splits)):
            raise OptionsError("split-name", fault=fault)
        check_class_names(self.class_names)
        if self.name is not None and (wrong := name_fault(self.name)):
            raise OptionsError("dataset-name", fault=wrong)

    def to_json(self) -> dict[str, Json]:
        """Return the options as the manifest records them."""
        dropped: list[Json] = [*sorted(self.roles.drop)]
        return {
            "source": SOURCE,
            "splits": dict(self.splits),
            "label": self.roles.label,
            "images": list(self.roles.images),
            "dropped": dropped,
            "allow_missing": self.allow_missing,
        }


@dataclass(frozen=True)
class Scanned:
    """The contents of one file.

    ``shard`` is its entry in the manifest without labels and keys, or None if it is damaged; ``index`` has
    the content of the index by path, and ``found`` the properties of the features of its records.
    """

    shard: Shard | None
    index: Mapping[str, bytes]
    found: Findings

    def labels(self, schema: Schema) -> bytes | None:
        """Return the content of the shard's file of labels; None if the schema has no label."""
        # an empty file has no features
        seen = self.found.features.get(schema.label.name) if schema.label else None
        return labels_bytes((seen and seen.labels) or []) if schema.label else None

    def keys(self, schema: Schema) -> bytes | None:
        """Return the content of the shard's file of keys; None if the schema has no key."""
        return keys_bytes(self.found.keys) if schema.key else None

    def companions(self, schema: Schema) -> dict[str, bytes]:
        """Return the content of the shard's index, labels and keys by path."""
        assert self.shard is not None
        path = self.shard.path
        optional = {labels_path(path): self.labels(schema), keys_path(path): self.keys(schema)}
        return {**self.index, **{name: data for name, data in optional.items() if data is not None}}

    def described(self, schema: Schema) -> Shard:
        """Return the entry of the shard in the manifest."""
        assert self.shard is not None
        labels, keys = self.labels(schema), self.keys(schema)
        return replace(
            self.shard,
            labels_digest="" if labels is None else bytes_digest(labels),
            keys_digest="" if keys is None else bytes_digest(keys),
        )


def adopted_manifest(
    folder: AnyPath,
    chosen: ChosenFiles,
    scanned: Mapping[str, Scanned],
    options: AdoptOptions,
) -> Manifest:
    """Return the manifest of the files in ``folder`` that were chosen and scanned."""
    together = Findings(options.roles)
    for one in scanned.values():
        together.join(one.found)
    if not together.num_records:
        raise InputError("adopt-no-records", folder=folder)
    inferred = infer(together)
    report_warning(*inferred.warnings)
    tfds = tfds_folders(folder, chosen.paths)
    if any((folder / each / FEATURES_NAME).is_file() for each in tfds):
        report_warning(
            f"{FEATURES_NAME} is not read: features are as the records show them, masks as images and arrays "
            "as lists; prep.build(prep.Examples(...)) of what TensorFlow Datasets reads keeps them"
        )
    folders = sorted({path.rpartition("/")[0] for path in chosen.paths})
    names, problems = _class_names(folder, folders, inferred, together, options)
    if problems := [*inferred.problems, *problems]:
        raise InputError("adopt-faults", *(f"  {problem}" for problem in problems), folder=folder)
    schema = Schema(inferred.features, names)
    splits = {
        name: Split(
            tuple(scanned[path].described(schema) for path in paths),
            _label_counts([scanned[path].found for path in paths], schema),
        )
        for name, paths in chosen.splits.items()
    }
    files = {name: [[shard.path, shard.digest] for shard in split.shards] for name, split in splits.items()}
    number = together.num_records
    return Manifest(
        name=options.name or _name(folder, tfds),
        build_id=id_of(json.dumps([schema.to_json(), files])),
        schema=schema,
        splits=splits,
        totals=Totals(number, number),
        options=options.to_json(),
        compression=chosen.compression,
    )


def _class_names(
    folder: AnyPath, folders: Sequence[str], inferred: Inferred, found: Findings, options: AdoptOptions
) -> tuple[tuple[str, ...], list[Problem]]:
    label = inferred.label
    if label is None:
        known = ", ".join(map(repr, (feature.name for feature in inferred.features))) or "none"
        fault = f"no feature is a label; name it with label=; the features are {known}"
        return (), [Problem("class_names=", fault)] if options.class_names is not None else []
    names = tuple(options.class_names or tfds_class_names(folder, folders, label.name))
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        fault = f"TFDS names the class {twice[0]!r} twice; give class_names="
        return (), [Problem(f"feature {label.name!r}", fault)]
    return names, label_faults(found.features[label.name], label, names) if names else []


def _label_counts(found: Sequence[Findings], schema: Schema) -> dict[str, int]:
    # an empty file has no features
    seen = [one.features.get(schema.label.name) for one in found] if schema.label else []
    labels = [np.array(one.labels, np.int64) for one in seen if one and one.labels]
    return label_counts(np.concatenate(labels) if labels else None, schema)


def _name(folder: AnyPath, tfds: Sequence[str]) -> str:
    last = os.path.basename(os.path.abspath(folder)) if isinstance(folder, Path) else folder.name
    name = tfds_name(folder, tfds) or last
    if fault := name_fault(name):
        raise InputError("adopt-folder-name", fault=fault)
    return name
