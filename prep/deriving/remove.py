"""Remove examples from a dataset by their keys, by rewriting the shards that hold them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from tfshards.prep.building.rejects import original_of
from tfshards.prep.deriving.edit import Edit, check_known_keys, commit_edit
from tfshards.prep.deriving.removed import are_removed, removed_line
from tfshards.prep.engines.table import EngineName, find_run
from tfshards.prep.progress.lines import Log, report_line, takes_log, to_stderr
from tfshards.prep.sources.keys import read_keys, to_bytes
from tfshards.prep.writing.build_folder import Reject
from tfshards.schemas import InputError, Manifest, OptionsError
from tfshards.schemas.errors import counted
from tfshards.schemas.keys import occurrences
from tfshards.schemas.storage import any_path


@takes_log
def remove(
    dataset: str | os.PathLike[str],
    keys: str | os.PathLike[str] | Collection[str | bytes],
    *,
    engine: EngineName | None = None,
    beam_args: Sequence[str] = (),
    log: Log = to_stderr,
) -> Manifest:
    """Remove examples, and rejected inputs, from a dataset.

    Only the shards that hold the examples are written, and those that give examples to them so that the
    shards of a split differ by at most one example, if they did before. Records are copied without being
    decoded; a digest verifies that all others are unchanged. The old dataset stays readable until the new
    one is committed, and its files until ``prune``. An interrupted call resumes when it is repeated.

    The dataset keeps a hash of each removed key, so that ``append`` does not take the input again. Inputs
    that were rejected as duplicates of a removed example are removed with it.

    Args:
        dataset: folder of the dataset.
        keys: file of keys, one per line, such as "audit" writes with "keys"; a line that starts with a
            quotation mark is a JSON string. In Python also the keys.
        engine: engine that writes the shards: "local", all cores of this machine, or "beam", Apache Beam.
        beam_args: Apache Beam's pipeline options, as for ``build``.
        log: receives status lines.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the dataset does not have a key, a split would have no examples, or the dataset cannot be
            edited.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    wanted = _wanted(keys)
    return commit_edit(dataset, lambda edit: _without(edit, wanted), find_run(engine, beam_args))


def _wanted(keys: str | os.PathLike[str] | Collection[str | bytes]) -> list[bytes]:
    if isinstance(keys, (str, os.PathLike)):
        if not any_path(keys).exists():
            raise InputError(f"keys={os.fspath(keys)!r} does not exist; name a file with a key per line")
        found = read_keys(keys)
        if not found:
            raise InputError("keys-empty", keys=os.fspath(keys))
        return sorted({*found})
    if isinstance(keys, bytes) or not isinstance(keys, Iterable) or not keys:
        raise OptionsError("keys-argument", keys=keys)
    if not all(isinstance(key, (str, bytes)) for key in keys):
        raise OptionsError("keys-type")
    return sorted({to_bytes(key) if isinstance(key, str) else key for key in keys})


def _without(edit: Edit, wanted: Sequence[bytes]) -> Edit | None:
    origin, is_removed = edit.origin, edit.is_removed.copy()
    removed: set[bytes] = set()
    # all examples with a key, even if there are several
    for number, key in occurrences(origin.root, origin.manifest.shards, wanted):
        is_removed[number] = True
        removed.add(key)
    gone = [reject for reject in edit.rejects if _is_named(reject, {*wanted})]
    removed |= {to_bytes(reject.key) for reject in gone}
    missing = [key for key in wanted if key not in removed]
    was_removed = are_removed(missing, edit.removed).tolist()
    unknown = [key for key, is_one in zip(missing, was_removed, strict=True) if not is_one]
    check_known_keys(unknown, len(wanted), origin)
    if num_before := sum(was_removed):
        report_line(f"{counted(num_before, 'key')} removed before")
    if not removed:
        return None
    inputs = f" and {counted(len(gone), 'rejected input')}" if gone else ""
    return replace(
        edit,
        verb="remove",
        what=f"removing {counted(int(is_removed.sum()), 'example')}{inputs} from",
        is_removed=is_removed,
        rejects=[reject for reject in edit.rejects if reject not in gone],
        removed=edit.removed | {removed_line(key) for key in removed},
    )


def _is_named(reject: Reject, keys: Collection[bytes]) -> bool:
    """Return whether a rejected input, or the example of which it was a duplicate, has one of these keys."""
    original = original_of(reject)
    return to_bytes(reject.key) in keys or (original is not None and to_bytes(original) in keys)
