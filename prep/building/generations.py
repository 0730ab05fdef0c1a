"""The generations of a dataset: list them, restore one, and remove what the dataset does not need."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial

from tfshards.prep.building.commit import commit
from tfshards.prep.building.made import made_of
from tfshards.prep.building.output import claimed, output_folder
from tfshards.prep.building.state import OutputState, inspect_output, plain_folder, plain_name
from tfshards.prep.progress.lines import report_line
from tfshards.prep.records.dataset_files import file_problems
from tfshards.prep.sources.staging_folder import staged_folders, unfinished_in
from tfshards.prep.writing.build_folder import BuildFolder, build_folders, is_owned
from tfshards.schemas import InputError, Manifest, read_manifest
from tfshards.schemas.errors import counted, listed, size
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import MANIFEST_NAME, RECORD_NAME
from tfshards.schemas.storage import AnyPath, any_path

_SHOWN = 5
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, repr=False)
class Generation:
    """One generation of a dataset.

    Attributes:
        folder: name of the folder of its build, for ``restore``.
        build_id: its build id; None if its manifest is damaged.
        committed_at: UTC time at which its build was complete.
        num_examples: number of its examples.
        made_by: what made it, such as ``images``, ``append`` or ``remove``.
        is_current: whether it is the dataset now.
        num_damaged: number of its shards that are missing or have another size, and 1 for a damaged manifest;
            it can be restored if this is 0.
    """

    folder: str
    build_id: str | None
    committed_at: datetime
    num_examples: int
    made_by: str
    is_current: bool
    num_damaged: int

    def __repr__(self) -> str:
        """Return the attributes in a line, for a table without a head."""
        state = f"{self.num_damaged:,} damaged" if self.num_damaged else "current" if self.is_current else ""
        committed = f"{self.committed_at:%Y-%m-%d %H:%M:%S} UTC"
        count = counted(self.num_examples, "example")
        return f"{self.folder or '-':<10} {committed} {count:>20}  {self.made_by:<8} {state}".rstrip()

    def to_json(self) -> dict[str, Json]:
        """Return the attributes as JSON values; the time as in ISO 8601."""
        return {**vars(self), "committed_at": self.committed_at.isoformat()}


def generations(dataset: str | os.PathLike[str]) -> list[Generation]:
    """List the generations of a dataset, which are kept until ``prune`` removes them.

    The current one is the first, then come the others from the newest to the oldest. If the manifest of the
    dataset is missing or damaged, none of them is the current one.

    Args:
        dataset: folder of the dataset, or its URL.

    Raises:
        OptionsError: it is a URL of a store that is not supported.
        InputError: it is not a dataset.
        FormatError: its manifest cannot be read, and there are no generations.
    """
    state = inspect_output(any_path(dataset))
    if not state.generations:
        # raises an error
        read_manifest(state.folder)
    found = [_described(state, build, manifest) for build, manifest in state.generations.items()]
    return sorted(found, key=lambda each: (each.is_current, each.committed_at, each.folder), reverse=True)


def _described(state: OutputState, build: BuildFolder, manifest: Manifest | None) -> Generation:
    copy = build.root / MANIFEST_NAME
    complete = (copy if copy.is_file() else state.folder / MANIFEST_NAME).stat().st_mtime_ns / 1e9
    return Generation(
        folder=build.name,
        build_id=manifest.build_id if manifest else None,
        committed_at=datetime.fromtimestamp(complete, timezone.utc),
        num_examples=manifest.num_examples if manifest else 0,
        made_by=str(made_of(manifest).made_by) if manifest else "",
        is_current=manifest is not None and build.name == state.current,
        num_damaged=len(file_problems(manifest, state.folder)) if manifest else 1,
    )


def restore(dataset: str | os.PathLike[str], folder: str) -> Manifest:
    """Make an earlier generation of a dataset the dataset again.

    Only the pointer is replaced. The generation that was the dataset is kept in its turn. A shard that is
    missing, or has another size, is copied from another generation that has an equal one.

    Args:
        dataset: folder of the dataset, or its URL.
        folder: name of the folder of the generation, as "generations" lists it.

    Returns:
        Its manifest.

    Raises:
        InputError: there is no such generation, or a shard of it is missing and no other has an equal one; or
            the dataset cannot be locked.
    """
    output = output_folder(dataset)
    with claimed(output) as state:
        complete = {build.name: build for build in state.generations}
        if folder not in complete:
            has = f"it has {listed([*complete], _SHOWN)}" if complete else "it has none"
            raise InputError(f"{output} has no generation {folder!r}; {has}; see 'tfshards generations'")
        manifest = state.generations[complete[folder]]
        damage = file_problems(manifest, output) if manifest else []
        if manifest and damage:
            copy_equal_shards(output, manifest, {problem.place for problem in damage})
            damage = file_problems(manifest, output)
        if manifest is None or damage:
            fault = damage[0] if damage else f"{MANIFEST_NAME} cannot be read"
            raise InputError(
                f"build {folder} of {output} is damaged and cannot be restored: {fault}; choose "
                "another, which 'tfshards generations' lists"
            )
        return commit(complete[folder], manifest, state)


def copy_equal_shards(folder: AnyPath, manifest: Manifest, damaged: Collection[str]) -> list[str]:
    """Replace damaged shards by equal ones of other builds, such as a repeated one; return their paths.

    The bytes of what is copied are compared with the digest.

    Raises:
        OSError: a copy cannot be written, or what was found to be equal cannot be read any more.
    """

    def is_equal(path: AnyPath, digest: str) -> bool:
        with suppress(OSError):
            return path.digest() == digest
        return False

    lost = {shard.path: shard.digest for shard in manifest.shards if shard.path in damaged}
    others = filter(None, [build.manifest() for build in build_folders(folder)]) if lost else ()
    shards = [shard for other in others for shard in other.shards if shard.path not in damaged]
    done: list[str] = []
    for path, digest in lost.items():
        alike = (folder / shard.path for shard in shards if shard.digest == digest)
        equal = next((each for each in alike if is_equal(each, digest)), None)
        if equal is None:
            continue
        with equal.open_regular() as file:
            if replace_damaged(folder, path, iter(partial(file.read, _BLOCK_BYTES), b"")):
                report_line(f"{path}: copied from {equal}")
                done.append(path)
    return done


def replace_damaged(dataset: AnyPath, path: str, blocks: Iterable[bytes]) -> bool:
    """Write a file in place of a damaged one; return False in a folder that tfshards did not make."""
    target = dataset / path
    if target.parent.is_symlink() or not is_owned(dataset / plain_folder(path)):
        return False
    target.parent.make_folder()
    with unfinished_in(dataset) as unfinished:
        target.write(blocks, unfinished)
        target.parent.sync()
    return True


def prune(dataset: str | os.PathLike[str]) -> list[str]:
    """Remove the files of earlier and unfinished builds.

    These are the generations that the dataset has replaced, which cannot be restored afterwards, and
    unfinished builds. Only files in folders that tfshards made are removed, and only those that have names as
    a build gives them. Do not prune while training still reads an earlier generation.

    Object stores have no locks: do not prune while a build of this dataset runs. Its files would be removed.

    Args:
        dataset: folder of a dataset, or of a build that was not committed, or its URL.

    Returns:
        The paths of the files in the dataset's folder that were removed.

    Raises:
        OptionsError: the path is a URL of a store that is not supported.
        InputError: the folder holds neither a dataset nor an unfinished build, or a build is running; or the
            manifest is missing, so that all generations would be removed.
        FormatError: the manifest cannot be read, so that the files of the dataset are not known.
    """
    folder = any_path(dataset)
    nothing = InputError(f"{folder} holds neither a dataset nor an unfinished build; nothing was removed")
    if not folder.is_dir():
        raise nothing
    with folder.locked():
        state, staged = inspect_output(folder), staged_folders(folder)
        if state.fault:
            raise state.fault
        if state.manifest is None and not (state.folders or staged):
            raise nothing
        complete = [build.name for build in state.generations]
        if state.manifest is None and complete:
            raise InputError(
                f"{folder} has no {MANIFEST_NAME}, so that nothing shows which of its generations is needed "
                f"({listed(complete, _SHOWN)}); make one of them the dataset with 'tfshards restore', or "
                "delete the folder"
            )
        needed = {*state.manifest.data_paths} if state.manifest else set[str]()
        if state.current:
            needed.add(f"{state.current}/{MANIFEST_NAME}")
        found: dict[str, int] = {}
        try:
            for build in state.folders:
                kept = {plain_name(path) for path in needed if plain_folder(path) == build.name}
                sizes = build.remove(kept)
                found |= {f"{build.name}/{name}": sizes[name] for name in sorted(sizes)}
            for path in staged:
                found[f"{path.name}/"] = sum(path.sizes_below().values())
                path.delete_tree(RECORD_NAME)
        except OSError as error:
            raise InputError(f"{error.filename}: {error.strerror}") from error
    report_line(f"{folder}: removed {counted(len(found), 'file')}, {size(sum(found.values()))}")
    return [*found]
