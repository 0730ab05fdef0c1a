"""The file ``inputs-<build id>.npz``: the inputs of a build, with their modification times.

From it, a later build sees which inputs may have changed, and a repair knows the inputs even if some were
deleted or added since. It is not part of the dataset, since it differs between copies of the inputs: without
it, a build compares the contents of all inputs.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tfshards.prep.planning.plan import Plan
from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.keys import RowKeys, to_text
from tfshards.schemas.files import write_atomically
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import inputs_name


@dataclass(frozen=True)
class RecordedInputs:
    """The inputs of a build, in the order of its listing; see ``Listing`` for the attributes.

    Attributes:
        splits: numbers of the inputs in each split, also if ratios gave the splits.
    """

    keys: Sequence[bytes]
    sizes: IntArray
    stamps: IntArray
    labels: IntArray | None
    splits: dict[str, IntArray]


def describe_changes(recorded: RecordedInputs, now: Listing) -> str:
    """Return how the inputs differ from those of a build, such as ``2 added, such as 'a.jpg'``."""
    if isinstance(now.keys, RowKeys):
        before, count = len(recorded.keys), len(now.keys)
        return f"{count:,} rows instead of {before:,}" if count != before else ""
    sizes = dict(zip(recorded.keys, recorded.sizes.tolist(), strict=True))
    current = dict(zip(now.keys, now.sizes.tolist(), strict=True))
    changes = {
        "added": [key for key in now.keys if key not in sizes],
        "missing": [key for key in recorded.keys if key not in current],
        "of another size": [key for key, size in current.items() if sizes.get(key, size) != size],
    }
    return ", ".join(
        f"{len(keys):,} {how}, such as {to_text(keys[0])!r}" for how, keys in changes.items() if keys
    )


def write_inputs(folder: Path, build_id: str, plan: Plan) -> None:
    """Record the inputs of a build in the folder of its dataset."""
    listing = plan.listing
    split = np.zeros(listing.num_examples, np.int16)
    for index, numbers in enumerate(plan.membership.examples.values()):
        split[numbers] = index
    keys = b"" if isinstance(listing.keys, RowKeys) else b"\0".join(listing.keys)
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "keys": np.frombuffer(keys, np.uint8),
        "sizes": listing.sizes,
        "stamps": listing.stamps,
        **({} if listing.labels is None else {"labels": listing.labels}),
        "splits": np.array([*plan.membership.examples]),
        "split": split,
    }
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    write_atomically(folder / inputs_name(build_id), file.getvalue())


def read_inputs(folder: Path, build_id: str) -> RecordedInputs | None:
    """Return the inputs of a dataset; None if their file is missing or damaged."""
    try:
        with np.load(folder / inputs_name(build_id), allow_pickle=False) as arrays:
            keys = arrays["keys"].tobytes()
            return RecordedInputs(
                keys=keys.split(b"\0") if keys else RowKeys(len(arrays["sizes"])),
                sizes=arrays["sizes"],
                stamps=arrays["stamps"],
                labels=arrays.get("labels"),
                splits={
                    name: np.flatnonzero(arrays["split"] == index)
                    for index, name in enumerate(arrays["splits"].tolist())
                },
            )
    except Exception:  # zipfile, its decompressors and NumPy raise almost anything for damaged bytes
        return None
