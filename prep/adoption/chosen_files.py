"""The TFRecord files of a folder that become a dataset: which, in which splits, with which compression."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfshards.prep.adoption.record_files import FoundFile, file_faults, list_files, record_files
from tfshards.prep.adoption.split_names import missing_shards, splits_by_glob, splits_by_name
from tfshards.prep.adoption.tfds_folder import tfds_folders
from tfshards.prep.progress import counted
from tfshards.schemas import FormatError, InputError
from tfshards.schemas.manifest import Compression


@dataclass(frozen=True)
class ChosenFiles:
    """Files that become shards.

    Attributes:
        splits: by name, the paths of its files in order.
        compression: of all files.
        num_bytes: of all files.
    """

    splits: Mapping[str, tuple[str, ...]]
    compression: Compression
    num_bytes: int

    @property
    def paths(self) -> list[str]:
        """The paths of all splits."""
        return [path for paths in self.splits.values() for path in paths]


def choose_files(
    root: Path, globs: Mapping[str, str], *, allow_missing: bool, talk: Callable[[str], None]
) -> ChosenFiles:
    """Return the files in ``root`` that become shards.

    Args:
        root: the folder.
        globs: the pattern of each split's paths; empty to tell the splits by the paths.
        allow_missing: whether files that others are numbered with may be missing.
        talk: is given a line about files that are left out.

    Raises:
        InputError: there are none, their splits cannot be told, or some are missing.
        FormatError: files cannot be shards; it holds every problem.
    """
    files = list_files(root)
    candidates = {file.path: file for file in record_files(files)}
    if not candidates:
        raise InputError(
            f"{root} holds no TFRecord files: none of {counted(len(files), 'file')} begins with a record"
        )
    splits = (
        splits_by_glob(list(candidates), globs)
        if globs
        else splits_by_name(list(candidates), tfds_folders(root, candidates))
    )
    chosen = [candidates[path] for found in splits.values() for path in found]
    problems = file_faults(sorted(chosen), root)
    if problems:
        raise FormatError(f"{root} cannot be adopted, nothing was written", problems)
    _check_numbers(root, [file.path for file in chosen], candidates, allow_missing=allow_missing, talk=talk)
    compression = _compression(chosen)
    empty = {file.path for file in chosen if file.form == "empty gzip"}
    for path in sorted(empty):
        talk(f"warning: {path} holds no records, and is left out")
    left = {name: tuple(path for path in found if path not in empty) for name, found in splits.items()}
    num_others = len(files) - len(chosen)
    if num_others:
        talk(f"{counted(num_others, 'other file')} left alone")
    return ChosenFiles(
        {name: paths for name, paths in left.items() if paths},
        compression,
        sum(file.num_bytes for file in chosen),
    )


def _check_numbers(
    root: Path,
    paths: list[str],
    present: Collection[str],
    *,
    allow_missing: bool,
    talk: Callable[[str], None],
) -> None:
    number, names = missing_shards(paths, present)
    if not number:
        return
    more = f" and {number - len(names):,} more" if number > len(names) else ""
    message = f"{counted(number, 'file')} missing, by the numbers of the others: {', '.join(names)}{more}"
    if not allow_missing:
        raise InputError(f"{root}: {message}; bring them back, or give --allow-missing to go without")
    talk(f"warning: {message}")


def _compression(files: list[FoundFile]) -> Compression:
    """Return the compression of all files that hold records.

    Raises:
        InputError: some are compressed and some are not.
    """
    gzip = [file.path for file in files if file.form == "gzip"]
    plain = [file.path for file in files if file.form == "none"]
    if gzip and plain:
        raise InputError(
            f"{counted(len(gzip), 'file')} compressed with gzip ({gzip[0]}) and {len(plain):,} plain "
            f"({plain[0]}); a dataset is one or the other: choose with --split NAME=GLOB"
        )
    return "gzip" if gzip else "none"
