"""Rejected inputs and duplicates: the limit on them, the layouts without them; warnings about losses."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import shorten

import numpy as np

from tfshards.prep.imaging.reasons import LOSSES, Reason
from tfshards.prep.planning.balance import rebalance
from tfshards.prep.planning.options import Options, too_many_shards
from tfshards.prep.planning.plan import Layouts, Plan
from tfshards.prep.progress.lines import report_line, report_warning
from tfshards.prep.records.values import DIGEST_BYTES
from tfshards.prep.sources.keys import to_text
from tfshards.prep.writing.build_folder import BuildFolder, FinishedShard, Reject, ShardId
from tfshards.schemas import BuildError, InputError, Manifest
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.errors import counted
from tfshards.schemas.json_reader import load_json
from tfshards.schemas.names import REJECTS_NAME, REMOVED_NAME
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.stored import LISTS

_DETAIL = "has the content of "


def with_lists(
    manifest: Manifest, rejects: Sequence[Reject], removed: Collection[bytes]
) -> tuple[Manifest, dict[str, bytes]]:
    """Return a manifest with these rejected inputs and removed keys, and the files that list them."""
    lines = b"".join(line + b"\n" for line in sorted(removed))
    files = {REJECTS_NAME: rejects_text(rejects), REMOVED_NAME: lines}
    digests = {name: bytes_digest(content) if content else "" for name, content in files.items()}
    reasons = Counter(reject.reason for reject in rejects)
    totals = replace(
        manifest.totals,
        entries=manifest.num_examples + len(rejects) + manifest.totals.skipped,
        accepted=manifest.num_examples,
        rejected=len(rejects),
        reasons={**manifest.totals.reasons, "rejected": dict(sorted(reasons.items()))},
    )
    manifest = replace(
        manifest,
        totals=totals,
        rejects_digest=digests[REJECTS_NAME],
        removed_digest=digests[REMOVED_NAME],
    )
    return manifest, {name: content for name, content in files.items() if content}


def rejects_text(rejects: Sequence[Reject]) -> bytes:
    """Return the content of a rejects file: one JSON object for each input, sorted by key."""
    return "".join(f"{json.dumps(reject._asdict())}\n" for reject in sorted(rejects)).encode("ascii")


def read_list(path: AnyPath, digest: str) -> bytes:
    """Return the content of a list of a dataset, which is empty and has no file if there is no digest.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        content = path.read_whole(LISTS) if digest else b""
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", code="unreadable") from None
    if digest and bytes_digest(content) != digest:
        raise InputError(f"{path}: its digest differs from the manifest's; restore the file")
    return content


def read_rejects(dataset: AnyPath, manifest: Manifest) -> list[Reject]:
    """Return the rejected inputs of a dataset.

    Raises:
        InputError: the file that lists them is missing or damaged.
    """
    path = dataset / manifest.rejects_path
    content = read_list(path, manifest.rejects_digest)
    try:
        lines = content.decode("ascii").splitlines()
        return [Reject(*(load_json(line)[name] for name in Reject._fields)) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is not a list of rejected inputs: {error!r}; restore the file") from None


def find_duplicates(layouts: Layouts, first: Mapping[ShardId, FinishedShard]) -> dict[int, int]:
    """Map the number of each duplicate to the number of the equal example with the smallest key."""
    planned = np.concatenate([layouts[split][index] for split, index in first])
    digests = [digest for shard in first.values() for digest in shard.contents]
    number = planned[np.array([*map(bool, digests)], np.bool_)]
    by_number = np.argsort(number)
    hashed = np.frombuffer(bytes.fromhex("".join(digests)), dtype=f"V{DIGEST_BYTES}")[by_number]
    number = number[by_number]
    # the first of equal examples has the smallest number, and therefore the smallest key
    _, first_index, inverse = np.unique(hashed, return_index=True, return_inverse=True)
    original = number[first_index[inverse]]
    repeated = number != original
    return dict(zip(number[repeated].tolist(), original[repeated].tolist(), strict=True))


def original_of(reject: Reject) -> str | None:
    """Return the key of the example that a reject is a duplicate of; None if it has another reason."""
    if reject.reason != Reason.DUPLICATE.value:
        return None
    return str(ast.literal_eval(reject.detail.removeprefix(_DETAIL)))


_SHOWN = 5
# Characters of the detail of a rejected input, such as a path and what is wrong there; the file that lists it
# has the rest.
_SHOWN_DETAIL = 200


def check_rejects(rejects: Sequence[Reject], plan: Plan, options: Options, folder: BuildFolder) -> None:
    """Raise BuildError if more inputs are rejected than ``max_rejected`` allows; list them in a file."""
    inputs = plan.listing.num_examples
    if len(rejects) <= options.rejected_share * inputs:
        return
    path = folder.work / REJECTS_NAME
    path.write_bytes(rejects_text(rejects))
    raise BuildError(
        f"{len(rejects)} of {inputs} inputs rejected ({_reasons(rejects)}), more than max_rejected= allows "
        f"({float(options.rejected_share * 100):.4g}%)",
        *_first(rejects),
        f"{path} lists them; fix them and repeat the call, or allow more with max_rejected=",
        code="too-many-rejected",
    )


def log_rejects(rejects: Sequence[Reject], num_inputs: int, folder: AnyPath, manifest: Manifest) -> None:
    """Log how many inputs of a committed build were rejected, for which reasons, and the first ones."""
    if rejects:
        report_warning(
            f"{len(rejects):,} of {num_inputs:,} inputs rejected ({_reasons(rejects)}); "
            f"{folder / manifest.rejects_path} lists them"
        )
        report_line(*_first(rejects))


def _reasons(rejects: Sequence[Reject]) -> str:
    commonest = Counter(reject.reason for reject in rejects).most_common(_SHOWN)
    return ", ".join(f"{count} {reason}" for reason, count in commonest)


def _first(rejects: Sequence[Reject]) -> list[str]:
    """Return lines that name the first few rejected inputs; duplicates, which are sound, come last."""
    first = sorted(rejects, key=lambda reject: (reject.reason == Reason.DUPLICATE.value, reject))[:_SHOWN]
    return [
        *(
            f"  {reject.key!r} ({reject.reason}): {shorten(reject.detail, _SHOWN_DETAIL, placeholder=' …')}"
            for reject in first
        ),
        *([f"  and {len(rejects) - _SHOWN:,} more"] if len(rejects) > _SHOWN else []),
    ]


def repeated_inputs(plan: Plan, first: Mapping[ShardId, FinishedShard], options: Options) -> list[Reject]:
    """Return the duplicates that are left out; raise BuildError if the options say so."""
    found = {} if options.duplicates == "keep" else find_duplicates(plan.layouts, first)
    if not found:
        return []
    keys, labels, sizes = plan.listing.keys, plan.listing.labels, plan.listing.sizes
    rejects = [
        Reject(to_text(keys[one]), Reason.DUPLICATE.value, f"{_DETAIL}{to_text(keys[of])!r}", int(sizes[one]))
        for one, of in found.items()
    ]
    if options.duplicates == "fail":
        have = "inputs have" if len(found) > 1 else "input has"
        raise BuildError(
            f"{len(found)} {have} the content of another, and duplicates='fail' was given:",
            *_first(rejects),
            code="duplicates-found",
        )
    contradict = [] if labels is None else [one for one, of in found.items() if labels[one] != labels[of]]
    if contradict:
        one = contradict[0]
        report_warning(
            f"{len(contradict)} of {len(found)} duplicates differ in the label from the example that is "
            f"kept, such as {to_text(keys[one])!r}, which equals {to_text(keys[found[one]])!r}"
        )
    return rejects


def final_layouts(plan: Plan, rejects: Sequence[Reject], *, may_be_empty: bool = False) -> Layouts:
    """Return the layouts without the rejected inputs, which depend only on the plan and the set of rejects.

    A split without accepted examples is left out if ``may_be_empty``; otherwise it raises BuildError.
    """
    if not rejects:
        return plan.layouts
    rejected = np.zeros(plan.listing.num_examples, dtype=np.bool_)
    for reject in rejects:
        # a dataset may hold rejects of earlier builds as well
        if (number := plan.listing.find(reject.key)) is not None:
            rejected[number] = True
    layouts = {}
    accepted = {
        split: sum(int((~rejected[shard]).sum()) for shard in layout)
        for split, layout in plan.layouts.items()
    }
    for split, layout in plan.layouts.items():
        if not accepted[split] and may_be_empty:
            continue
        if not accepted[split]:
            raise BuildError(
                f"every input of split {split!r} was rejected; in all, {_reasons(rejects)}:",
                *_first(rejects),
                "fix these inputs, or give options under which they are accepted, and build again",
            )
        if accepted[split] < len(layout):
            counts = {name: len(shards) for name, shards in plan.layouts.items()}
            raise BuildError(f"after rejects, {too_many_shards(split, counts, accepted)}")
        layouts[split] = rebalance(layout, rejected)
    return layouts


def loss_warnings(shards: Iterable[FinishedShard]) -> Iterator[str]:
    """Yield a warning for each kind of loss in these shards: a count, an example, and the remedy."""
    shards = list(shards)
    for loss in LOSSES:
        count = sum(shard.conversions.get(loss.conversion, 0) for shard in shards)
        if count and loss.done:
            keys = [shard.converted_keys.get(loss.conversion, "") for shard in shards]
            example = min(filter(None, keys), default="")
            such = f", such as {example!r}" if example else ""
            yield f"{counted(count, 'image')} {loss.done}{such}; {loss.remedy}"
