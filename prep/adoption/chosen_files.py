"""Choose the TFRecord files of a folder that become shards, with their splits and their compression."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tfshards.prep.adoption.record_files import FoundFile, file_faults, list_files, record_files
from tfshards.prep.adoption.split_names import missing_shards, splits_by_glob, splits_by_name
from tfshards.prep.adoption.tfds_folder import tfds_folders
from tfshards.prep.progress.lines import Log, as_warning
from tfshards.schemas import FormatError, InputError
from tfshards.schemas.errors import counted, listed
from tfshards.schemas.manifest import Compression
from tfshards.schemas.names import is_reserved
from tfshards.schemas.storage import AnyPath

# Number of skipped files that are named.
_SHOWN = 3


@dataclass(frozen=True)
class ChosenFiles:
    """Files that become shards.

    Attributes:
        splits: the paths of the files of each split, in order.
        compression: the compression of all files.
        num_bytes: the size of all files together.
    """

    splits: Mapping[str, tuple[str, ...]]
    compression: Compression
    num_bytes: int

    @property
    def paths(self) -> list[str]:
        """The paths of all splits."""
        return [path for paths in self.splits.values() for path in paths]


def choose_files(root: AnyPath, globs: Mapping[str, str], *, allow_missing: bool, log: Log) -> ChosenFiles:
    """Return the files in ``root`` that become shards.

    Args:
        root: the folder.
        globs: the pattern of each split's paths; empty to derive the splits from the paths.
        allow_missing: whether files may be missing according to the numbers of the others.
        log: called with a line about files that are skipped.

    Raises:
        InputError: there are none, their splits are ambiguous, or some are missing.
        FormatError: files cannot be shards; it lists every problem.
    """
    files = list_files(root)
    candidates = {file.path: file for file in record_files(files)}
    if not candidates:
        raise InputError("adopt-no-files", root=root, num_files=len(files))
    splits = (
        splits_by_glob(list(candidates), globs)
        if globs
        else splits_by_name(list(candidates), tfds_folders(root, candidates))
    )
    chosen = [candidates[path] for found in splits.values() for path in found]
    problems = file_faults(sorted(chosen), root)
    if problems:
        raise FormatError(f"{root} cannot be adopted, nothing was written", problems)
    _check_numbers(root, [file.path for file in chosen], candidates, allow_missing=allow_missing, log=log)
    compression = _compression(chosen)
    empty = {file.path for file in chosen if file.form == "empty gzip"}
    for path in sorted(empty):
        log(as_warning(f"{path} holds no records and is skipped"))
    left = {name: tuple(path for path in found if path not in empty) for name, found in splits.items()}
    taken = {file.path for file in chosen}
    # metadata of TensorFlow Datasets, which is read where it helps
    others = [file.path for file in files if file.path not in taken and not is_reserved(file.path)]
    if others:
        log(f"{counted(len(others), 'other file')} skipped: {listed(others, _SHOWN)}")
    return ChosenFiles(
        {name: paths for name, paths in left.items() if paths},
        compression,
        sum(file.num_bytes for file in chosen),
    )


def _check_numbers(
    root: AnyPath,
    paths: list[str],
    present: Collection[str],
    *,
    allow_missing: bool,
    log: Log,
) -> None:
    number, names = missing_shards(paths, present)
    if not number:
        return
    more = f" and {number - len(names):,} more" if number > len(names) else ""
    message = f"{counted(number, 'file')} missing in a numbered series: {', '.join(names)}{more}"
    if not allow_missing:
        raise InputError("adopt-files-missing", root=root, message=message)
    log(as_warning(message))


def _compression(files: list[FoundFile]) -> Compression:
    """Return the compression of all files that hold records.

    Raises:
        InputError: some are compressed and some are not.
    """
    gzip = [file.path for file in files if file.form == "gzip"]
    plain = [file.path for file in files if file.form == "none"]
    if gzip and plain:
        raise InputError(
            "adopt-compressions-mixed", num_gzip=len(gzip), gzip=gzip[0], num_plain=len(plain), plain=plain[0]
        )
    return "gzip" if gzip else "none"
