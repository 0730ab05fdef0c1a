"""Repair a dataset: rebuild its damaged files and verify them by their digests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from glob import glob
from itertools import chain
from pathlib import Path

from tfshards.prep.building.output import locked, remove_staged
from tfshards.prep.building.restore import Inputs, source_or_paths
from tfshards.prep.progress.lines import Log, report_line, takes_log
from tfshards.prep.records.shard_file import scan_shard
from tfshards.prep.sources.base import Source
from tfshards.prep.verification.report import RepairReport
from tfshards.prep.verification.verify import verify
from tfshards.prep.views.table import refresh_views, view_problems
from tfshards.schemas import InputError, Manifest, OptionsError, read_manifest
from tfshards.schemas.build_area import write_files
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.generations import kept_manifests
from tfshards.schemas.names import rejects_name
from tfshards.schemas.storage import RemotePath, any_path, check_expanded, is_remote


@takes_log
def repair(
    dataset: str | os.PathLike[str], source: Inputs | None = None, *, log: Log = lambda _: None
) -> RepairReport:
    """Rebuild the damaged files of a dataset, and return a report that is true if the dataset is sound now.

    A new file replaces a damaged one only if it has the digest in the manifest. If an error is raised, files
    that were repaired before it stay repaired.

    Args:
        dataset: the dataset's folder.
        source: the inputs that the dataset was built from: the image folder, the arrays or the table as they
            were given to ``build``, for which the options are those in the manifest; or a source with the
            same options. If examples were appended since, it may be the grown source, or the inputs of one of
            the builds. Without it only indexes, labels and keys are repaired, which are derived from
            their shards.
        log: receives a line for each file that is rebuilt.

    Raises:
        OptionsError: ``dataset`` is a URL, ``source`` is neither paths nor a source, or there are more inputs
            than the dataset was built from.
        InputError: ``dataset`` is not a dataset, another process is writing to it, or the inputs do not
            exist or are not those that it was built from.
        FormatError: the manifest is damaged, so that the dataset cannot be rebuilt.
    """
    folder = any_path(dataset)
    if isinstance(folder, RemotePath):
        raise OptionsError("repair-remote", folder=folder)
    inputs = [] if source is None else source_or_paths(source)
    read_manifest(folder)
    for given in inputs if isinstance(inputs, list) else ():
        # also arguments such as NAME=FILE.npy, and patterns
        paths = filter(None, (given, given.partition("=")[2]))
        if not any(is_remote(path) or os.path.exists(path) or glob(path) for path in paths):
            check_expanded(given)
            raise InputError("repair-input-missing", given=given)
    with locked(folder):
        remove_staged(folder)
        manifest = read_manifest(folder)
        found = verify(folder).problems
        damaged = {problem.place for problem in found}
        repaired: list[str] = []
        faults: dict[str, InputError] = {}
        rebuilt = _rebuilt(folder, manifest, damaged, inputs, faults)
        for path in chain(rebuilt, _repaired_views(folder, manifest)):
            report_line(f"{path}: rebuilt")
            repaired.append(path)
        # what replaced a damaged file had the digest in the manifest
        left = [problem for problem in found if problem.place not in repaired]
        for index, problem in enumerate(left):
            if fault := faults.get(problem.place):
                left[index] = replace(problem, message=f"{problem.message}; not rebuilt: {fault}")
        return RepairReport(os.fspath(dataset), found, tuple(repaired), tuple(left), bool(inputs))


def _rebuilt(
    folder: Path,
    manifest: Manifest,
    damaged: set[str],
    inputs: Source | list[str],
    faults: dict[str, InputError],
) -> Iterator[str]:
    needs_source = bool(
        damaged & {rejects_name(manifest.build_id), *(shard.path for shard in manifest.shards)}
    )
    for shard in manifest.shards:
        if shard.path in damaged or not damaged & set(shard.companion_digests):
            continue
        _, companions = scan_shard(folder, shard.path, manifest.compression, schema=manifest.schema)
        for path, data in companions.items():
            if path in damaged and bytes_digest(data) == shard.companion_digests[path]:
                write_files(folder, {path: data})
                yield path
    if inputs and needs_source:
        # imported late, because it needs Pillow
        from tfshards.prep.rewriting.rebuild import rebuild

        yield from rebuild(folder, manifest, damaged, inputs, faults)


def _repaired_views(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Write the views that are missing, damaged or stale; yield their paths."""
    earlier = kept_manifests(folder)
    before = [problem.place for problem in view_problems(manifest, folder, earlier)]
    refresh_views(manifest, folder, earlier, replaces_foreign=True)
    after = {problem.place for problem in view_problems(manifest, folder, earlier)}
    yield from (path for path in before if path not in after)
