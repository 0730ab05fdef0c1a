"""A folder of images: class folders, split folders with class folders inside, or no folders."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfshards.prep.images import PILLOW_VERSION, SUFFIXES, ImageError, check_option, normalise
from tfshards.prep.plan import IntArray
from tfshards.prep.sources.listing import Accepted, Listing, Outcome, Rejected, Row, to_bytes, to_text
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.reading import Json

SPLIT_FOLDERS = frozenset(
    (b"train", b"training", b"validation", b"valid", b"val", b"dev", b"test", b"testing")
)

# Training first, as people list them: train…, val… and dev, test….
_SPLIT_ORDER = (b"tr", b"va", b"de", b"te")

_IMAGE = Feature("image", "image", "uint8", (None, None, 3))
_LABEL = Feature("label", "label", "int64")
_KEY = Feature("key", "bytes", "bytes")


@dataclass(frozen=True)
class ImageFolder:
    """A folder of image files; the key of an example is its path relative to the folder.

    The top-level folders are splits if every one is named train, training, validation, valid, val, dev, test
    or testing; otherwise they are classes, searched recursively. Classes are numbered in the sorted order of
    their names, over all splits together. Without folders there are no labels.

    Attributes:
        root: the folder.
        check: ``decode`` decodes every image, ``header`` reads headers only; both re-encode what TensorFlow
            would show otherwise than Pillow, and reject what cannot be read. ``none`` takes the files' bytes
            as they are.

    Raises:
        OptionsError: ``check`` is none of these.
    """

    root: str | os.PathLike[str]
    check: str = "decode"

    def __post_init__(self) -> None:
        check_option(self.check)

    def stage(self, folder: Path, *, preview: bool = False) -> ImageFolder:
        """Return the source itself: its content is in files."""
        return self

    def location(self) -> Path:
        """Return the folder."""
        return Path(self.root)

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        # What is re-encoded depends on the encoder's release.
        decoder = {} if self.check == "none" else {"pillow": PILLOW_VERSION}
        return {"source": "images", "check": self.check, **decoder}

    def listing(self) -> Listing:
        """Return the listing: names, sizes and modification times.

        Raises:
            InputError: the folder is missing or cannot be read, or holds no images.
        """
        root = os.path.realpath(os.fsencode(self.root))
        if not os.path.isdir(root):
            problem = "is not a folder" if os.path.exists(root) else "does not exist"
            raise InputError(f"{os.fspath(self.root)} {problem}")
        skipped: Counter[str] = Counter()
        try:
            found = sorted(_images(root, skipped))
        except OSError as error:
            raise InputError(
                f"{os.fsdecode(error.filename or root)}: cannot be read: {error.strerror}"
            ) from None
        if not found:
            listed = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
            seen = f" (skipped: {listed})" if skipped else ""
            known = ", ".join(sorted(suffix.decode() for suffix in SUFFIXES))
            raise InputError(f"{os.fspath(self.root)} holds no images{seen}; files are known by {known}")
        return _arrange(root, found, skipped)

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return the image, label and key of each row, or why it is rejected."""
        return [self._read_one(row, has_label="label" in schema.names) for row in rows]

    def groups(self, listing: Listing, by: str) -> Sequence[bytes]:
        """Return each image's group: ``by`` is ``folder``, or a regular expression with one group.

        The expression is searched for in the key (the path relative to the folder).
        """
        if by == "folder":
            return [os.path.dirname(key) for key in listing.keys]
        try:
            pattern = re.compile(os.fsencode(by))
        except (re.error, OverflowError, RecursionError) as error:
            raise OptionsError(f"--group-by {by}: no regular expression: {error}") from None
        if pattern.groups != 1:
            raise OptionsError(f"--group-by {by}: must be 'folder' or a regular expression with one (group)")
        found = [pattern.search(key) for key in listing.keys]
        for key, match in zip(listing.keys, found, strict=True):
            if not match or match[1] is None:
                raise InputError(f"--group-by {by}: does not match the key {os.fsdecode(key)!r}")
        return [match[1] for match in found if match]

    def _read_one(self, row: Row, *, has_label: bool) -> Outcome:
        key = to_bytes(row.key)
        path = os.path.join(os.fsencode(self.root), key)
        data = _read_unchanged(path, row)
        try:
            image = normalise(data, check_option(self.check))
        except ImageError as fault:
            return Rejected(fault.reason, fault.detail)
        return Accepted((image, row.label, key) if has_label else (image, key))


def _images(root: bytes, skipped: Counter[str]) -> Iterator[tuple[bytes, int, int]]:
    """Yield key, size and modification time of each image in ``root``, counting all else."""
    # no recursion: folders may be nested deeper than calls can be
    folders = [(b"", False)]
    while folders:
        prefix, is_hidden = folders.pop()
        with os.scandir(os.path.join(root, prefix)) as entries:
            for entry in entries:
                hidden = is_hidden or entry.name.startswith(b".")
                if entry.is_dir(follow_symlinks=False):
                    folders.append((prefix + entry.name + b"/", hidden))
                    continue
                reason = "hidden" if hidden else _no_image(entry, root)
                if reason:
                    skipped[reason] += 1
                else:
                    status = entry.stat()
                    yield prefix + entry.name, status.st_size, status.st_mtime_ns


def _no_image(entry: os.DirEntry[bytes], root: bytes) -> str | None:
    """Return why an entry that is not hidden is skipped, or None for an image file."""
    if os.path.splitext(entry.name)[1].lower() not in SUFFIXES:
        return "not an image"
    if entry.is_symlink() and not os.path.realpath(entry.path).startswith(os.path.join(root, b"")):
        return "link out of the root"
    try:
        return None if stat.S_ISREG(entry.stat().st_mode) else "special file"
    except OSError:
        return "broken link"


def _arrange(root: bytes, found: list[tuple[bytes, int, int]], skipped: Counter[str]) -> Listing:
    """Return the listing of the files, with splits and classes read off their paths."""
    folders = _folders(root)
    has_splits = bool(folders) and all(name in SPLIT_FOLDERS for name in folders)
    below = {name: _folders(os.path.join(root, name)) for name in folders} if has_splits else {b"": folders}
    class_names = sorted({name for names in below.values() for name in names})
    depth = 1 if has_splits else 0
    if has_splits and class_names:
        bare = [name for name, names in below.items() if not names]
        if bare:
            named = f"{os.fsdecode(root)}: the split folder {os.fsdecode(bare[0])!r}"
            raise InputError(f"{named} has no class folders, others have; give it the same ones")
    # a file that stands beside the folders it should be in belongs to no class or split
    least = depth + (2 if class_names else 1)
    inside = [item for item in found if item[0].count(b"/") >= least - 1]
    if len(inside) < len(found):
        skipped["beside the folders"] += len(found) - len(inside)
    if not inside:
        raise InputError(
            f"{os.fsdecode(root)} holds no images inside its folders, only {len(found)} beside them"
        )
    keys = [key for key, _, _ in inside]
    number = {name: index for index, name in enumerate(class_names)}
    labels = _numbers(number[key.split(b"/", depth + 1)[depth]] for key in keys) if class_names else None
    features = (_IMAGE, _LABEL, _KEY) if class_names else (_IMAGE, _KEY)
    names = tuple(map(to_text, class_names))
    return Listing(
        schema=Schema(features, names),
        keys=keys,
        sizes=_numbers(size for _, size, _ in inside),
        stamps=_numbers(stamp for _, _, stamp in inside),
        labels=labels,
        splits=_split_folders(keys) if has_splits else None,
        skipped=dict(sorted(skipped.items())),
        warnings=_warnings(names, labels, folders, has_splits, keys),
    )


def _folders(folder: bytes) -> list[bytes]:
    with os.scandir(folder) as entries:
        return sorted(
            e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(b".")
        )


def _split_folders(keys: list[bytes]) -> dict[str, IntArray]:
    tops = [key.split(b"/", 1)[0] for key in keys]
    members: dict[bytes, list[int]] = {}
    for number, top in enumerate(tops):
        members.setdefault(top, []).append(number)
    in_order = sorted(members, key=lambda top: (_SPLIT_ORDER.index(top[:2]), top))
    return {top.decode(): _numbers(members[top]) for top in in_order}


def _warnings(
    class_names: tuple[str, ...],
    labels: IntArray | None,
    folders: list[bytes],
    has_splits: bool,
    keys: list[bytes],
) -> tuple[str, ...]:
    tops = {key.split(b"/", 1)[0] for key in keys}
    bare = [os.fsdecode(name) for name in folders if has_splits and name not in tops]
    warnings = [f"the split folder {name!r} holds no images; there is no such split" for name in bare]
    if not has_splits:
        alike = [os.fsdecode(name) for name in folders if name in SPLIT_FOLDERS]
        other = next((os.fsdecode(name) for name in folders if name not in SPLIT_FOLDERS), "")
        warnings += [f"{name!r} is taken as a class, since {other!r} is no split's name" for name in alike]
    present = set() if labels is None else set(labels.tolist())
    empty = [name for index, name in enumerate(class_names) if index not in present]
    warnings += [f"the class folder {name!r} holds no images; it keeps its number" for name in empty]
    return tuple(warnings)


def _read_unchanged(path: bytes, row: Row) -> bytes:
    """Return the file's bytes if it is still the one that was listed."""
    try:
        # os.open, not open: a third of the system calls, and small files are all there is to this
        # and without waiting, should the file have become a pipe
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = _read_all(descriptor, row.size)
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError(f"{os.fsdecode(path)}: cannot be read: {error.strerror}") from None
    if (status.st_size, status.st_mtime_ns, len(data)) != (row.size, row.stamp, row.size):
        raise InputError(f"{os.fsdecode(path)}: changed after the build had listed it; run the command again")
    return data


def _read_all(descriptor: int, size: int) -> bytes:
    """Return ``size`` bytes, or fewer if the file ends before."""
    data = os.read(descriptor, size)
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


def _numbers(values: Iterator[int] | list[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)
