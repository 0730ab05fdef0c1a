"""Open the shards of a split: what is checked before a record of them is read."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tfshards.loader.options.load_options import Cache, LoadOptions
from tfshards.loader.reading.cache import FirstRecords, copied_shards
from tfshards.loader.reading.damage import Damage
from tfshards.loader.reading.frames import REMEDY, Frames
from tfshards.loader.reading.source import OpenSplit
from tfshards.loader.reading.windows import Windows
from tfshards.schemas import FormatError, OptionsError, Problem, Shard
from tfshards.schemas.digests import NUM_LAST_BYTES
from tfshards.schemas.errors import size
from tfshards.schemas.storage import AnyPath

# More than there are CPUs: the threads mostly wait for storage.
_NUM_LOCAL, _NUM_REMOTE = 16, 64


def open_frames(source: OpenSplit, options: LoadOptions) -> tuple[Frames, Damage]:
    """Return the frames of a split after the checks of its files, and what is done about damage.

    Raises:
        FormatError: a file is missing, or differs from the manifest; of shards not if damage is skipped.
    """
    root, shards = source.root, source.split.shards
    is_skipped = options.on_damage == "skip"
    with ThreadPoolExecutor(_NUM_REMOTE if root.is_far else _NUM_LOCAL) as threads:
        files = list(threads.map(lambda shard: _file_problem(root, shard), shards))
    found = zip(shards, files, strict=True)
    problems = [Problem(shard.path, fault) for shard, (fault, _) in found if fault]
    if problems and not is_skipped:
        raise FormatError(f"{root}: the shards of split {source.name!r} ({REMEDY})", problems)
    frames = Frames(
        root,
        shards,
        copied_shards(source, options.cached, strict=not is_skipped),
        versions=[version for _, version in files] if root.is_far else (),
        is_whole=not is_skipped,
    )
    frames.read_indexes()
    if is_skipped:
        _check_own(frames, [fault for fault, _ in files])
    return frames, Damage(frames, is_skipped=is_skipped)


def open_windows(
    source: OpenSplit, cache: Cache | None, frames: Frames, *, is_scattered: bool
) -> Windows | None:
    """Return what fetches the records of a bucket, or of a cache with a limit; None if files are read.

    ``is_scattered`` is whether records are read that are no neighbors.
    """
    is_limited = cache is not None and cache.most_bytes is not None
    if frames.is_local and not is_limited:
        return None
    if is_scattered:
        num_bytes = sum(shard.record_bytes for shard in frames.shards)
        raise OptionsError(
            "Shuffle(how='full') and classes= read examples one by one, for which the shards of "
            f'{source.label} must be on a local disk: cache="disk:FOLDER" copies them, {size(num_bytes)}, '
            "before the first step",
            code="cache-needed",
        )
    return Windows(frames, FirstRecords(source, cache, frames) if cache and is_limited else None)


def _check_own(frames: Frames, faults: Sequence[str]) -> None:
    """Raise FormatError if a file that differs at its end has a sound last record: it is another shard."""
    wrong = [index for index, fault in enumerate(faults) if fault and frames.sizes[index]]
    foreign = [index for index in wrong if frames.is_sound(frames.ends[index : index + 1] - 1).all()]
    if foreign:
        problems = [Problem(frames.shards[index].path, faults[index]) for index in foreign]
        raise FormatError(f"{frames.root}: the records of the shards ({REMEDY})", problems)


def _file_problem(root: AnyPath, shard: Shard) -> tuple[str, str]:
    """Return what is wrong with the file of a shard, or nothing; and the version of its object."""
    path = root / shard.path
    try:
        status = path.stat()
        size, version = status.st_size, getattr(status, "e_tag", "")
        last_bytes = path.read_range(max(0, size - NUM_LAST_BYTES), size, version).hex()
    except OSError as error:
        return f"cannot be read: {error.strerror}", ""
    if size != shard.num_bytes:
        return f"has {size} bytes instead of the {shard.num_bytes} in the manifest", version
    if last_bytes != shard.last_bytes:
        wrong = f"ends with the bytes {last_bytes} instead of {shard.last_bytes} as in the manifest"
        return f"{wrong}: it is a different file", version
    return "", version
