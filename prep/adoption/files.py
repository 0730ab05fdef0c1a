"""Find the TFRecord files of a folder by their content, and their splits by their names or by patterns."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tfshards.prep.progress.lines import report_line, report_warning
from tfshards.prep.sources.classes import USUAL_SPLITS, usual_order
from tfshards.schemas import FormatError, InputError, Problem
from tfshards.schemas.compression import CODEC_ERRORS, Compression
from tfshards.schemas.errors import counted, listed
from tfshards.schemas.frames import stated_length
from tfshards.schemas.index import HEADER_BYTES
from tfshards.schemas.names import MANIFEST_NAME, shard_path_fault
from tfshards.schemas.storage import AnyPath

# x.tfrecord, x.tfrecord-00000-of-00008, data_tfrecord-00000-of-00001.gz, x.tfrec, x.tfrecords.gz
_NAME = re.compile(r"(?:^|[._-])tfrec(?:ords?)?(?:[._-]|$)", re.IGNORECASE)
_NUMBERED = re.compile(r"(?P<head>.*?)[0-9]+-of-(?P<total>[0-9]+)(?P<tail>.*)", re.DOTALL)
_WORD = re.compile(rf"(?:{'|'.join(USUAL_SPLITS)}|eval)\d*")
_SEPARATOR = re.compile(r"[^a-z0-9]+")
_GZIP_START = b"\x1f\x8b"
# how many files a message names
_SHOWN = 5


class ChosenFiles(NamedTuple):
    """Files that become shards: the paths of those of each split, in order, and the compression of all."""

    splits: Mapping[str, Sequence[str]]
    compression: Compression

    @property
    def paths(self) -> list[str]:
        """The paths of all splits."""
        return [path for paths in self.splits.values() for path in paths]


def choose_files(root: AnyPath, globs: Mapping[str, str], folders: Collection[str]) -> ChosenFiles:
    """Return the files in ``root`` that become shards; not those in the ``folders`` of builds.

    These are the files that begin with a record, and those that should by their names: ``*.tfrecord`` or
    similar. Other files, empty ones, hidden names and links to folders are skipped.
    """
    others = sorted(
        path
        for path in root.sizes_below()
        if not ("/." in f"/{path}" or path == MANIFEST_NAME or path.partition("/")[0] in folders)
        # next to shards, also by other tools
        and not path.endswith((".idx", ".labels", ".keys"))
    )
    # of many objects, the first bytes are requested at the same time
    forms = dict(zip(others, root.each(lambda path: _form(root / path), others), strict=True))
    left = [
        path
        for path, form in forms.items()
        if form in ("none", "gzip") or (form == "other" and _NAME.search(path.rpartition("/")[2]))
    ]
    if not left:
        number = counted(len(forms), "file")
        raise InputError(f"{root} holds no TFRecord files: none of {number} begins with a record")
    splits = _splits_by_glob(left, globs) if globs else _splits_by_name(left)
    chosen = sorted(path for paths in splits.values() for path in paths)
    if problems := [Problem(path, fault) for path in chosen if (fault := _fault(root, path, forms[path]))]:
        raise FormatError(f"{root} cannot be adopted, nothing was written", problems)
    if lacking := _incomplete([path for path, form in forms.items() if path in chosen or form == "empty"]):
        if not globs:
            raise InputError(f"{lacking}; restore the others, or name the files of each split with splits=")
        report_warning(lacking)
    gzip, plain = ([path for path in chosen if forms[path] == form] for form in ("gzip", "none"))
    if gzip and plain:
        raise InputError(
            f"{counted(len(gzip), 'file')} compressed with gzip ({gzip[0]}) and {len(plain):,} plain "
            f"({plain[0]}); a dataset has one compression: choose the files with splits="
        )
    if skipped := sorted({*forms} - {*chosen}):
        report_line(f"{counted(len(skipped), 'other file')} skipped: {listed(skipped, _SHOWN)}")
    return ChosenFiles(splits, "gzip" if gzip else "none")


def _form(path: AnyPath) -> str:
    """Return what a file holds: records, by their compression, ``empty`` or ``other``."""
    if not path.is_file():
        return "other"
    start = bytes(path.read_range(0, min(path.stat().st_size, HEADER_BYTES)))
    compression = "none"
    if start.startswith(_GZIP_START) and not _is_header(start):
        compression = "gzip"
        try:
            file, _ = path.open_unpacked(compression)
            with file:
                start = file.read(HEADER_BYTES)
        except CODEC_ERRORS:
            return "other"
    return compression if _is_header(start) else "other" if start else "empty"


def _is_header(start: bytes) -> bool:
    """Return whether the first bytes of a file are a record's length and a checksum that matches."""
    return len(start) == HEADER_BYTES and stated_length(start) is not None


def _fault(root: AnyPath, path: str, form: str) -> str | None:
    """Return why a file cannot be a shard, or None."""
    if form == "other":
        return (
            "is not a TFRecord file, despite its name: no record begins there, plain or unpacked with gzip; "
            "restore it, or choose the files with splits="
        )
    if not (root / path).is_inside(root):
        return "is a link to a file outside the folder; replace it with the file itself"
    fault = shard_path_fault(path)
    return f"the path {fault}; rename it" if fault else None


def _splits_by_glob(paths: Sequence[str], globs: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the paths that match the pattern of each split, in which ``*`` also matches ``/``."""
    splits = {name: [path for path in paths if fnmatch.fnmatchcase(path, globs[name])] for name in globs}
    owners: dict[str, str] = {}
    for name, found in splits.items():
        if not found:
            given, known = {name: globs[name]}, listed(paths, _SHOWN)
            raise InputError(f"splits={given} matches no TFRecord file; the files are {known}")
        for path in found:
            if (other := owners.setdefault(path, name)) != name:
                both = {each: globs[each] for each in (other, name)}
                raise InputError(
                    f"{path} matches the patterns of two splits, splits={both}; each file has one split"
                )
    return splits


def _splits_by_name(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the paths of each split, training first.

    The split is the name of a folder (``train/``, ``Split-train/``), or a word in the file's name
    (``photos-train.tfrecord-00000-of-00004``). If no path names a split, all files are ``train``.
    """
    splits: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        splits[_split_of(path)].append(path)
    if "" in splits and len(splits) > 1:
        named = next(name for name in splits if name)
        raise InputError(
            f"{splits[''][0]} names no split, but {splits[named][0]} names {named!r}; assign every file with "
            "splits="
        )
    return {name or "train": splits[name] for name in sorted(splits, key=usual_order)}


def _split_of(path: str) -> str:
    *folders, name = path.lower().split("/")
    # only whole names of folders count: training_data/ may hold a test set
    words = [*_SEPARATOR.split(name), *(folder.removeprefix("split-") for folder in folders)]
    first, *others = [*dict.fromkeys(filter(_WORD.fullmatch, words)), ""]
    if len(others) > 1:
        raise InputError(f"{path} names two splits, {first!r} and {others[0]!r}; choose one with splits=")
    return first


def _incomplete(paths: Sequence[str]) -> str:
    """Return which series, such as ``train-00003-of-00008``, lacks files, or is mixed with another one."""
    series = defaultdict[tuple[str, str], Counter[int]](Counter)
    for match in filter(None, map(_NUMBERED.fullmatch, paths)):
        series[match["head"], match["tail"]][int(match["total"])] += 1
    for (head, tail), numbers in series.items():
        for total, number in numbers.items():
            if number != total or len(numbers) > 1:
                totals = " or ".join(map(str, numbers))
                return f"{head}…-of-{total}{tail}: {number:,} files of a series of {totals}"
    return ""
