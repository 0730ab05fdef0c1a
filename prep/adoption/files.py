"""Find the TFRecord files of a folder by their content, and their splits by their names or by patterns."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from tfshards.prep.progress.lines import report_line, report_warning
from tfshards.prep.records.frames import parse_header
from tfshards.prep.sources.classes import usual_order
from tfshards.schemas import FormatError, InputError, OptionsError, Problem
from tfshards.schemas.compression import CODEC_ERRORS, Compression
from tfshards.schemas.errors import counted, listed
from tfshards.schemas.index import HEADER_BYTES, index_path
from tfshards.schemas.names import MANIFEST_NAME, RECORD_NAME, shard_path_fault
from tfshards.schemas.storage import AnyPath, read_range
from tfshards.schemas.storage.any_path import is_inside
from tfshards.schemas.storage.untrusted import open_unpacked
from tfshards.schemas.storage.verbs import each, sizes_below

# x.tfrecord, x.tfrecord-00000-of-00008, data_tfrecord-00000-of-00001.gz, x.tfrec, x.tfrecords.gz
_TFRECORD_NAME = re.compile(r"(?:^|[._-])tfrec(?:ords?)?(?:[._-]|$)", re.IGNORECASE)
_NUMBERED = re.compile(r"(?P<head>.*?)(?P<index>[0-9]+)-of-(?P<total>[0-9]+)(?P<tail>.*)", re.DOTALL)
_WORD = re.compile(r"(?:train|training|validation|valid|val|dev|eval|test|testing)\d*")
_SEPARATOR = re.compile(r"[^a-z0-9]+")
_GZIP_START = b"\x1f\x8b"
# what a file holds that becomes a shard
_RECORDS = ("none", "gzip")
# how many files a message names
_SHOWN = 5


@dataclass(frozen=True)
class ChosenFiles:
    """Files that become shards.

    Attributes:
        splits: the paths of the files of each split, in order.
        compression: the compression of all of them.
        indexes: the paths of the folders of their companions.
        companions: the paths of what is in these folders.
    """

    splits: Mapping[str, Sequence[str]]
    compression: Compression
    indexes: Sequence[str]
    companions: frozenset[str]

    @property
    def paths(self) -> list[str]:
        """The paths of all splits."""
        return [path for paths in self.splits.values() for path in paths]


def choose_files(root: AnyPath, globs: Mapping[str, str]) -> ChosenFiles:
    """Return the files in ``root`` and the folders in it that become shards.

    These are the files that hold records, and those that should by their names: ``*.tfrecord`` or similar, or
    numbered together with a file that holds records. Hidden names and links to folders are skipped.
    """
    paths = sorted(path for path in sizes_below(root) if "/." not in f"/{path}")
    companions = set(filter(_is_companion, paths))
    others = [path for path in paths if path != MANIFEST_NAME and path not in companions]
    # of many objects, the first bytes are requested at the same time
    forms = dict(zip(others, each(root, lambda path: _form(root / path), others), strict=True))
    series = {_series_of(path) for path, form in forms.items() if form in _RECORDS} - {None}
    candidates = [
        path
        for path, form in forms.items()
        if form in _RECORDS or _TFRECORD_NAME.search(path.rpartition("/")[2]) or _series_of(path) in series
    ]
    unfilled = [path for path in candidates if forms[path] == "no records"]
    left = [path for path in candidates if forms[path] != "no records"]
    if not left:
        raise InputError("adopt-no-files", root=root, num_files=len(forms))
    for path in unfilled:
        report_warning(f"{path} holds no records and is skipped")
    splits = _splits_by_glob(left, globs) if globs else _splits_by_name(left)
    chosen = sorted(path for paths in splits.values() for path in paths)
    if problems := [Problem(path, fault) for path in chosen if (fault := _fault(root, path, forms[path]))]:
        raise FormatError(f"{root} cannot be adopted, nothing was written", problems)
    if message := _missing(chosen, candidates):
        # a pattern chooses what exists
        if not globs:
            raise InputError("adopt-files-missing", root=root, message=message)
        report_warning(message)
    gzip, plain = ([path for path in chosen if forms[path] == form] for form in ("gzip", "none"))
    if gzip and plain:
        raise InputError(
            "adopt-compressions-mixed", num_gzip=len(gzip), gzip=gzip[0], num_plain=len(plain), plain=plain[0]
        )
    if skipped := sorted({*forms} - {*chosen, *unfilled}):
        report_line(f"{counted(len(skipped), 'other file')} skipped: {listed(skipped, _SHOWN)}")
    indexes = sorted({index_path(path).rpartition("/")[0] for path in chosen})
    inside = frozenset(path for path in companions if path.rpartition("/")[0] in indexes)
    return ChosenFiles(splits, "gzip" if gzip else "none", indexes, inside)


def _is_companion(path: str) -> bool:
    """Return whether a file is an index of any tool, or another one that tfshards writes next to indexes."""
    *_, folder, name = ("", *path.split("/"))
    return name.endswith(".idx") or (
        folder == "index" and (name.endswith((".labels", ".keys")) or name == RECORD_NAME)
    )


def _form(path: AnyPath) -> str:
    """Return what a file holds: records, by their compression, ``empty``, ``no records`` or ``other``."""
    if not path.is_file():
        return "other"
    if not (num_bytes := path.stat().st_size):
        return "empty"
    start = read_range(path, 0, min(num_bytes, HEADER_BYTES))
    if _is_header(start):
        return "none"
    if not start.startswith(_GZIP_START):
        return "other"
    try:
        file, _ = open_unpacked(path, "gzip")
        with file:
            start = file.read(HEADER_BYTES)
    except CODEC_ERRORS:
        return "other"
    return "gzip" if _is_header(start) else "other" if start else "no records"


def _is_header(start: bytes) -> bool:
    """Return whether the first bytes of a file are a record's length and a checksum that matches."""
    return len(start) == HEADER_BYTES and parse_header(start) is not None


def _fault(root: AnyPath, path: str, form: str) -> str | None:
    """Return why a file cannot be a shard, or None."""
    if form == "other":
        return (
            "is not a TFRecord file, despite its name: no record begins there, plain or unpacked with gzip; "
            "restore it, or choose the files with splits="
        )
    if not is_inside(root / path, root):
        return "is a link to a file outside the folder; replace it with the file itself"
    fault = shard_path_fault(path)
    return f"the path {fault}; rename it" if fault else None


def parse_globs(texts: Sequence[str]) -> dict[str, str]:
    """Return the patterns in texts such as ``train=part-0*``, by split."""
    globs: dict[str, str] = {}
    for text in texts:
        name, _, glob = text.partition("=")
        if not glob:
            raise OptionsError("glob-form", text=text)
        if name in globs:
            raise OptionsError("glob-repeated", text=text, name=name)
        globs[name] = glob
    return globs


def _splits_by_glob(paths: Sequence[str], globs: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the paths that match the pattern of each split, in which ``*`` also matches ``/``."""
    split_of: dict[str, str] = {}
    for name, glob in globs.items():
        found = [path for path in paths if fnmatch.fnmatchcase(path, glob)]
        if not found:
            known = f"; the files are {listed(paths, _SHOWN)}"
            raise InputError("glob-without-files", given={name: glob}, known=known)
        for path in found:
            other = split_of.setdefault(path, name)
            if other != name:
                both = {each: globs[each] for each in (other, name)}
                raise InputError("globs-overlap", path=path, both=both)
    return {name: [path for path in paths if split_of.get(path) == name] for name in globs}


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
        raise InputError("file-without-split", splits=splits[""][0], splits2=splits[named][0], named=named)
    ordered = sorted(splits, key=usual_order)
    return {name or "train": splits[name] for name in ordered}


def _split_of(path: str) -> str:
    folder, _, name = path.lower().rpartition("/")
    # names between "-" or "." take precedence: stress_test-train.tfrecord belongs to train
    words = [word for word in re.split(r"[-.]", name) if _WORD.fullmatch(word)]
    words = words or [word for word in _SEPARATOR.split(name) if _WORD.fullmatch(word)]
    for part in folder.split("/"):
        # only whole names of folders count: training_data/ may hold a test set
        inner = [word for word in _SEPARATOR.split(part) if word != "split"]
        words += inner if len(inner) == 1 and _WORD.fullmatch(inner[0]) else []
    found = list(dict.fromkeys(words))
    if len(found) > 1:
        raise InputError("file-of-two-splits", path=path, found=found[0], found2=found[1])
    return found[0] if found else ""


def _series_of(path: str) -> tuple[str, str, str] | None:
    """Return the common parts of the names of a numbered series, such as ``train-00003-of-00008``."""
    match = _NUMBERED.fullmatch(path)
    return (match["head"], match["total"], match["tail"]) if match else None


def _missing(chosen: Sequence[str], present: Collection[str]) -> str:
    """Return which files of numbered series are missing, or nothing; others were left out on purpose."""
    numbers: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for path in present:
        if match := _NUMBERED.fullmatch(path):
            numbers[match["head"], match["total"], match["tail"]].add(int(match["index"]))
    first: dict[tuple[str, str], str] = {}
    for path in chosen:
        if not (series := _series_of(path)):
            continue
        head, total, tail = series
        other = first.setdefault((head, tail), path)
        if _series_of(other) != series:
            raise InputError("two-series", other=other, path=path)
        found, number = numbers[series], int(total)
        if len(found) < number:
            # some tools count from 1
            start = 1 if 0 not in found and number in found else 0
            index = next(index for index in count(start) if index not in found)
            name = f"{head}{index:0{len(total)}}-of-{total}{tail}"
            return f"{counted(number - len(found), 'file')} missing in a numbered series, such as {name}"
    return ""
