"""The build area in an object store, which has no locks and no renaming.

An attempt at a build shows itself by a file, which is empty as long as the attempt may run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tfshards.schemas import BuildError, Shard
from tfshards.schemas.storage import RemotePath, RemoteStatus, copy_file, in_flight
from tfshards.schemas.storage.untrusted import RECORD, read_whole
from tfshards.schemas.storage.writing import MAX_COPIED_BYTES, abort_uploads

_LATER = "a later run of the same build has begun; wait until that has ended"
_GONE = "the build area was removed: another run of the same build has ended, or it was pruned"


def begin_attempt(root: RemotePath, own: RemotePath, others: str) -> None:
    """Write the file of an attempt, and stop those that match ``others``; do nothing if it has begun.

    If two attempts begin together, at most one stops the other, because each looks for others before it
    shows itself. The parts of unfinished uploads, which earlier attempts have left, are removed.
    """
    attempts = sorted(root.glob(others))
    if own in attempts:
        return
    for other in attempts:
        stop_attempt(other, _LATER)
    own.write_bytes(b"")
    if attempts:
        abort_left_uploads(root)


def stop_attempt(path: RemotePath, why: str) -> None:
    """Write the reason for which an attempt must stop into its file; the first reason is kept."""
    with suppress(OSError):
        status = path.stat()
        if not status.st_size:
            path.write_if((why or "stopped").encode("utf-8", "surrogateescape"), status)


def reason_to_stop(path: RemotePath) -> str | None:
    """Return why an attempt must stop, or None."""
    try:
        return read_whole(path, RECORD).decode("utf-8", "surrogateescape") or None
    except FileNotFoundError:
        return _GONE


def copy_into_place(finished: RemotePath, out: RemotePath, names: Mapping[str, str]) -> None:
    """Copy finished shards into the dataset inside the store, many at the same time.

    This includes existing ones, such as those of a run that was killed before it could check them.
    """
    sizes = {name: status.st_size for name, status in stored(finished).items()}
    large = {path for path, name in names.items() if sizes.get(name, 0) > MAX_COPIED_BYTES}

    def copy(path: str) -> None:
        (finished / names[path]).copy_to(out / path)

    for _ in in_flight(copy, [path for path in names if path not in large]):
        pass
    for path in sorted(large):
        copy_file(finished / names[path], out / path)


def check_unchanged(
    finished: RemotePath, records: Sequence[tuple[Shard, Mapping[str, str]]], digests: Mapping[str, str]
) -> None:
    """Raise BuildError if a finished shard has been replaced before it was copied.

    Another run of the same build may have found an input with other content, and written its shard again.
    ``records`` are the finished shards as recorded now, with their ETags; linked shards have no record.
    """
    is_same = compared(finished)
    sound = {
        shard.path
        for shard, e_tags in records
        if digests.get(shard.path) == shard.digest and is_same(shard, e_tags)
    }
    for path in digests if records else ():
        if path not in sound:
            raise BuildError("shard-replaced", path=finished / path)


def e_tags_of(folder: RemotePath, shard: Shard) -> dict[str, str]:
    """Return the ETags of a shard, its index and its labels; OSError if one is missing or incomplete."""
    found = dict(in_flight(lambda path: (path, (folder / path).stat()), shard.files))
    if found[shard.path].st_size != shard.num_bytes:
        has = f"has {found[shard.path].st_size} bytes, but {shard.num_bytes} were uploaded"
        raise OSError(None, has, str(folder / shard.path))
    return {path: status.e_tag for path, status in found.items()}


def compared(folder: RemotePath) -> Callable[[Shard, Mapping[str, str]], bool]:
    """Return a function that returns whether a shard, its index and its labels are those with these ETags.

    They are compared with a listing. Reading all shards again would take as long as writing them, while an
    object cannot change in part: it is what one upload wrote, whose ETag was recorded, or another one.
    """
    found = stored(folder)

    def is_same(shard: Shard, e_tags: Mapping[str, str]) -> bool:
        statuses = {path: found.get(path) for path in shard.files}
        status = statuses[shard.path]
        return (
            status is not None
            and status.st_size == shard.num_bytes
            and all(one and one.e_tag == e_tags.get(path) for path, one in statuses.items())
        )

    return is_same


def stored(folder: RemotePath) -> dict[str, RemoteStatus]:
    """Return the objects in a folder and in ``index``, by path, with what the listing says of them."""
    found = [*folder.files(), *(folder / "index").files()]
    return {path.relative_to(folder).as_posix(): status for path, status in found}


def remove_area(root: RemotePath, last: str) -> None:
    """Remove a build area, its file ``last`` after the others, and the parts of unfinished uploads."""
    root.remove_tree(last)
    abort_left_uploads(root)


def abort_left_uploads(root: RemotePath) -> None:
    """Remove the parts of unfinished uploads; without the right to list them, a rule of the bucket has to."""
    with suppress(OSError):
        abort_uploads(root)
