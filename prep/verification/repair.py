"""Rebuild what follows from a dataset's manifest, its sound shards, and those of other builds beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePath

from tfshards.prep.building.generations import copy_equal_shards, replace_damaged
from tfshards.prep.building.made import Made, made_of
from tfshards.prep.progress.lines import report_line
from tfshards.prep.records.frames import Frame
from tfshards.prep.records.shard_file import scan
from tfshards.prep.sources.staging_folder import remove_staged
from tfshards.prep.views.files import view_files
from tfshards.prep.writing.build_folder import BuildFolder
from tfshards.schemas import Manifest, Problem, Shard
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.errors import counted
from tfshards.schemas.example import ParsedExample
from tfshards.schemas.index import labels_bytes
from tfshards.schemas.names import MANIFEST_NAME, RECORD_NAME
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.stored import METADATA

# Verbs that write the next generation of a dataset from the last one.
_EDITS = ("append", "remove", "relabel")


def repaired(
    name: str, folder: AnyPath, manifest: Manifest, problems: Sequence[Problem]
) -> tuple[tuple[Problem, ...], tuple[str, ...], tuple[str, ...]]:
    """Rebuild the damaged files of a locked dataset that need no inputs.

    These are shards of which another build in the folder holds an equal one; indexes, labels and keys, which
    follow from their shards if those are sound; and the views and the copy of the manifest in the folder of
    the build. A file is only replaced by one that has its digest in the manifest, and only in a folder that
    tfshards made.

    Returns:
        The problems that are left, the paths of the files that were rebuilt, and how to repair the others.
    """
    remove_staged(folder)
    damaged = {problem.place for problem in problems}
    digests = {path: digest for shard in manifest.shards for path, digest in shard.companion_digests.items()}
    digests |= {**manifest.views, **copy_digest(folder, manifest)}
    done = copy_equal_shards(folder, manifest, damaged)
    for path, data in _rebuilt(folder, manifest, damaged - {*done}):
        is_lost = path in damaged and bytes_digest(data) == digests.get(path)
        if is_lost and replace_damaged(folder, path, [data]):
            report_line(f"{path}: rebuilt")
            done.append(path)
    # what replaced a damaged file had its digest in the manifest
    left = tuple(problem for problem in problems if problem.place not in done)
    remedies = _remedies(name, folder, manifest, {problem.place for problem in left})
    return left, tuple(done), tuple(remedies)


def _rebuilt(folder: AnyPath, manifest: Manifest, damaged: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield what can be rebuilt: the companions of sound shards of which one is damaged, and other files."""
    for shard in manifest.shards:
        if shard.path not in damaged and {*shard.companion_digests} & {*damaged}:
            yield from _companions(folder, shard, manifest).items()
    for view, data in view_files(manifest).items():
        yield f"{manifest.folder}/{view}", data
    yield f"{manifest.folder}/{MANIFEST_NAME}", (folder / MANIFEST_NAME).read_whole(METADATA)


def _companions(folder: AnyPath, shard: Shard, manifest: Manifest) -> dict[str, bytes]:
    label, key = manifest.schema.label, manifest.schema.key
    labels: list[int] = []
    keys: list[bytes] = []

    def look(frame: Frame) -> None:
        example = ParsedExample(frame.data or b"")
        if label:
            labels.append(example.label(label.name))
        if key:
            keys.append(example.required_key())

    # a record that is damaged in spite of the digest was written so: its companions have another digest
    records, _ = scan(folder / shard.path, manifest.compression, look)
    file = shard.num_bytes, shard.digest, shard.last_bytes
    listed = labels_bytes(labels) if label else None
    return records.describe(shard.path, file, listed, keys if key else None, shard.companions)[1]


def folders_of(folder: AnyPath, manifest: Manifest) -> list[BuildFolder]:
    """Return the folders of the builds whose files belong to a dataset."""
    paths = [*(shard.index_path for shard in manifest.shards), *manifest.other_digests]
    names = {path.partition("/")[0] for path in paths} | {manifest.folder}
    return [BuildFolder(folder, name) for name in sorted(names)]


def copy_digest(folder: AnyPath, manifest: Manifest) -> dict[str, str]:
    """Return the digest of the manifest in the folder of the build, by path."""
    return {f"{manifest.folder}/{MANIFEST_NAME}": (folder / MANIFEST_NAME).digest()}


def _remedies(name: str, dataset: AnyPath, manifest: Manifest, left: Collection[str]) -> Iterator[str]:
    """Yield how to repair damaged files, a line for each folder of a build that holds some."""
    is_adopted = made_of(manifest).source == "adopt"
    for build in folders_of(dataset, manifest):
        inside = f"{build.name}/"
        paths = [inside + RECORD_NAME, *(path for path in manifest.data_paths if path.startswith(inside))]
        if paths[0] in left:
            yield f"{build.name}: its {RECORD_NAME} is missing or damaged; copy the folder from a backup"
        elif {*paths} & {*left} and not is_adopted:
            yield f"{build.name}: {_command(name, build, manifest)}"
    if is_adopted and {*manifest.data_paths} & {*left}:
        yield "copy the damaged TFRecord files from where they came from, and repeat 'tfshards adopt'"


def _command(name: str, build: BuildFolder, manifest: Manifest) -> str:
    """Return what writes the damaged files of a build again."""
    # prune has removed the manifest of a build of which only some shards are needed
    written = build.manifest()
    verb = (made_of(written) if written else Made(build.record()[0])).made_by
    if verb in _EDITS:
        return (
            f"make the generation before it the dataset ('tfshards generations {name}' lists them, 'tfshards "
            f"restore'), and repeat the '{verb}' that wrote it"
        )
    command = verb if verb in ("reshard", "merge") else f"build {verb}".strip()
    # the name is an option, and by default that of the folder
    named = (written or manifest).name
    option = "" if named == PurePath(name).name else f" --name {named}"
    inputs = f"inputs ({counted(written.num_examples, 'example')})" if written else "inputs"
    text = f"'tfshards {command} … {name}{option} --overwrite' with the same {inputs} and options "
    if build.name == manifest.folder:
        return f"{text}repairs it"
    back = f"'tfshards restore {name} {manifest.folder}' and 'tfshards verify {name} --repair'"
    return f"{text}writes it again; then {back} repair the dataset, by its equal shards"
