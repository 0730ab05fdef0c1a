"""Make TFRecord files that another tool wrote a dataset: they are read once, and stay as they are.

elsewhere/train-00000-of-00008     the files, wherever they are in the folder
elsewhere/3f9a2c1b/index/          the folder of a build, with the index, labels and keys of each file
elsewhere/dataset.json             the commit, as of any build
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tfshards.prep.adoption.features import DEFAULT_LABEL, Features, infer
from tfshards.prep.adoption.files import ChosenFiles, choose_files
from tfshards.prep.building.commit import build_overtaken, check_readable, commit
from tfshards.prep.building.state import OutputState, differences, inspect_output
from tfshards.prep.engines.work import Tick, in_threads
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import Meter, report_warning
from tfshards.prep.records.dataset_files import digest_problems
from tfshards.prep.records.shard_file import Records, scan
from tfshards.prep.sources.classes import ClassNames, given_class_names
from tfshards.prep.sources.staging_folder import remove_staged
from tfshards.prep.writing.build_folder import linked
from tfshards.schemas import (
    FormatError,
    InputError,
    Manifest,
    OptionsError,
    Problem,
    Split,
    Totals,
)
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.errors import check_flags
from tfshards.schemas.index import labels_bytes
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import is_manifest
from tfshards.schemas.names import MANIFEST_NAME, name_fault
from tfshards.schemas.storage import AnyPath, ChangedError, any_path

SOURCE = "adopt"


class _Read(NamedTuple):
    """What one file holds."""

    records: Records
    file: tuple[int, str, str]
    features: Features


def adopt(
    dataset: str | os.PathLike[str],
    *,
    name: str | None = None,
    splits: Mapping[str, str] | None = None,
    label: str | None = None,
    class_names: ClassNames = None,
    overwrite: bool = False,
) -> Manifest:
    """Write a manifest for existing TFRecord files, plain or compressed with gzip.

    Every record is read and checked, and the features are inferred from all of them. The files stay as they
    are.

    Args:
        dataset: folder of the files, or its URL, which becomes a dataset.
        name: name of the dataset; by default the name of the folder.
        splits: files of each split, such as train=train-*, where * also matches /; other files are skipped.
            By default splits are derived from the names of folders and files.
        label: feature whose integers are classes; by default label, if it exists.
        class_names: file of the class names in label order, one per line, or a dataset that has them, or, in
            Python, the names.
        overwrite: replace the dataset of an earlier call with other files, records or options.

    Returns:
        The manifest.

    Raises:
        OptionsError: an option is not allowed.
        InputError: the files do not form a dataset, or the folder already is one.
        FormatError: files or records are damaged, or are not ``tf.train.Example``; it lists every problem.
        BuildError: in an object store, another process has written a manifest meanwhile.
    """
    check_flags(overwrite=overwrite)
    class_names = given_class_names(class_names)
    for option, names in (("splits", splits or ()), ("name", () if name is None else (name,))):
        for fault in filter(None, map(name_fault, names)):
            raise OptionsError(f"{option}=: {fault}")
    folder = any_path(dataset)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {what}; name a folder of TFRecord files")
    named = name or folder.normalized().name
    if reason := name_fault(named):
        raise InputError(f"the name of the folder {reason}; give another with name=")
    with folder.locked() as note:
        report_warning(*filter(None, [note]))
        remove_staged(folder)
        state = inspect_output(folder)
        _check_replaceable(state, overwrite=overwrite)
        chosen = choose_files(folder, splits or {}, [build.name for build in state.folders])
        files = _read_all(folder, chosen, label)
        schema = infer(folder, [each.features for each in files.values()], label, class_names)
        options: dict[str, Json] = {"source": SOURCE, "splits": dict(splits or {}), "label": label}
        draft = Manifest(named, "", "", schema, {}, Totals(0, 0), options, compression=chosen.compression)
        return _write(state, draft, chosen, files, overwrite=overwrite)


def _check_replaceable(state: OutputState, *, overwrite: bool) -> None:
    """Raise FormatError or InputError unless the folder has no manifest, or one that may be replaced."""
    folder, pointer = state.folder, state.folder / MANIFEST_NAME
    if pointer.is_symlink():
        raise linked(pointer)
    if state.fault and not (overwrite and is_manifest(pointer)):
        raise state.fault
    if state.manifest and not state.is_adopted:
        # its manifest holds what records do not, such as class names and the number of rejected inputs
        build_id = state.manifest.build_id
        raise InputError(f"{folder} is already a dataset, build {build_id}, and needs no adoption")
    others = [build.name for build in state.folders if build.record()[0].get("source") != SOURCE]
    if state.version is None and others:
        raise InputError(
            f"{folder} holds builds of tfshards without {MANIFEST_NAME}; 'tfshards restore {folder} "
            f"{others[-1]}' makes one the dataset"
        )


def _read_all(folder: AnyPath, chosen: ChosenFiles, label: str | None) -> dict[str, _Read]:
    """Return what each file holds; threads read one file each."""

    def read(path: str, tick: Tick) -> _Read | Problem:
        features = Features(path, label or DEFAULT_LABEL)
        records, faults = scan(folder / path, chosen.compression, features.look, tick=lambda _: tick(0))
        for error in faults:
            return Problem(path, f"record {error.record} at byte {error.offset}: {error.fault}")
        found = _Read(records, (folder / path).read_once(), features)
        tick(found.file[0])
        return found

    with Meter("adopt", sum((folder / path).stat().st_size for path in chosen.paths)) as meter:
        found = in_threads(read, chosen.paths, meter.add)
    if problems := [each for each in found if isinstance(each, Problem)]:
        raise FormatError(f"{folder} cannot be adopted, nothing was written", problems)
    return {path: each for path, each in zip(chosen.paths, found, strict=True) if isinstance(each, _Read)}


def _write(
    state: OutputState, draft: Manifest, chosen: ChosenFiles, files: Mapping[str, _Read], *, overwrite: bool
) -> Manifest:
    """Write the companions and the manifest into the folder of a build, and make it the dataset.

    Raises:
        InputError: it is another dataset, and ``overwrite`` is false.
    """
    folder = state.folder
    draft, companions = _described(draft, chosen, files)
    draft = replace(draft, build_id=draft.content_id())
    builds = state.builds_of(draft.build_id)
    same = [each for each in builds if each.manifest() == _placed(draft, each.name)]
    build = same[0] if same else state.new_folder(draft.build_id)
    manifest = _placed(draft, build.name)
    if state.manifest and state.manifest != manifest and not overwrite:
        what = differences(state.manifest.options, manifest.options)
        what = what.replace("inputs", "files, records or class names")
        raise InputError(f"{folder} was adopted with {what}; give overwrite=True to adopt it again")
    text = manifest.to_text().encode("ascii")
    check_readable(text, build.root / MANIFEST_NAME)
    digests = {name: bytes_digest(data) for name, data in companions.items()}
    if not same or digest_problems(build.root, digests):
        build.create(manifest.options)
        build.open()
        build.put_all(companions)
        build.root.sync("index")
        (build.root / MANIFEST_NAME).put(text, build.work)
        build.root.sync()
    try:
        return commit(build, manifest, state)
    except (FileExistsError, ChangedError):
        raise build_overtaken(inspect_output(folder)) from None


def _described(
    draft: Manifest, chosen: ChosenFiles, files: Mapping[str, _Read]
) -> tuple[Manifest, dict[str, bytes]]:
    """Return the manifest of a build whose folder has no name yet, and the content of its companions."""
    schema, splits, companions = draft.schema, dict[str, Split](), dict[str, bytes]()
    for split, paths in chosen.splits.items():
        shards, labels = [], [np.zeros(0, np.int64)]
        for number, path in enumerate(paths):
            records, file, features = files[path]
            if schema.label:
                labels.append(np.array(features.labels, np.int64))
            shard, contents = records.describe(
                path,
                file,
                labels_bytes(labels[-1]) if schema.label else None,
                features.keys if schema.key else None,
                # next to where a build would write it
                f"{draft.name}-{split}.tfrecord-{number:05d}-of-{len(paths):05d}",
            )
            shards.append(shard)
            companions |= contents
        counts = label_counts(np.concatenate(labels) if schema.label else None, schema)
        splits[split] = Split(tuple(shards), counts)
    count = sum(split.num_examples for split in splits.values())
    return replace(draft, splits=splits, totals=Totals(count, count)), companions


def _placed(draft: Manifest, folder: str) -> Manifest:
    """Return the manifest of a build in a folder of this name."""

    def placed(split: Split) -> Split:
        shards = (replace(shard, companions=f"{folder}/{shard.companions}") for shard in split.shards)
        return replace(split, shards=tuple(shards))

    return replace(draft, folder=folder, splits={name: placed(each) for name, each in draft.splits.items()})
