"""The file ``inputs-<build id>.npz``: the inputs of a build, with their modification times.

From it, a later build sees which inputs may have changed, and a repair knows the inputs even if some were
deleted or added since. It is not part of the dataset, since it differs between copies of the inputs: without
it, a build compares the contents of all inputs.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from tfshards.prep.planning.plan import Plan
from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.keys import JoinedKeys, RowKeys, parts_of, to_text
from tfshards.schemas import Schema
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import inputs_name
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import INPUTS, open_regular, read_whole, size_of


@dataclass(frozen=True)
class RecordedInputs:
    """The inputs of a build in the order of its listing (see ``Listing``), and the numbers in each split."""

    keys: Sequence[bytes]
    sizes: IntArray
    stamps: IntArray
    labels: IntArray | None
    splits: dict[str, IntArray]


def describe_changes(recorded: RecordedInputs, now: Listing) -> str:
    """Return how the inputs differ from those of a dataset, such as ``2 added, such as 'a.jpg'``.

    The text is empty if keys and sizes are the same.
    """
    if isinstance(now.keys, RowKeys):
        before, count = len(recorded.keys), len(now.keys)
        return f"{count:,} rows instead of {before:,}" if count != before else ""
    sizes = dict(zip(recorded.keys, recorded.sizes.tolist(), strict=True))
    current = dict(zip(now.keys, now.sizes.tolist(), strict=True))
    found = {
        "added": [key for key in now.keys if key not in sizes],
        "missing": [key for key in recorded.keys if key not in current],
        "of another size": [key for key in now.keys if sizes.get(key, current[key]) != current[key]],
    }
    return ", ".join(
        f"{len(keys):,} {how}, such as {to_text(keys[0])!r}" for how, keys in found.items() if keys
    )


def has_masks(schema: Schema) -> bool:
    """Return whether the size and the time of an input include a mask."""
    return any(feature.kind == "mask" for feature in schema.features)


def inputs_of(plan: Plan) -> RecordedInputs:
    """Return what is recorded of the inputs of a build."""
    found, splits = plan.listing, plan.membership.examples
    return RecordedInputs(found.keys, found.sizes, found.stamps, found.labels, dict(splits))


def inputs_content(inputs: RecordedInputs) -> bytes:
    """Return the content of the file of the inputs of a build."""
    split = np.zeros(len(inputs.sizes), np.int16)
    for index, numbers in enumerate(inputs.splits.values()):
        split[numbers] = index
    keys = b"" if isinstance(inputs.keys, RowKeys) else b"\0".join(parts_of(inputs.keys))
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "keys": np.frombuffer(keys, np.uint8),
        "sizes": inputs.sizes,
        "stamps": inputs.stamps,
        **({} if inputs.labels is None else {"labels": inputs.labels}),
        "splits": np.array([*inputs.splits]),
        "split": split,
    }
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def read_inputs(folder: AnyPath, build_id: str) -> RecordedInputs | None:
    """Return the inputs of a dataset; None if their file is missing or damaged."""
    path = folder / inputs_name(build_id)
    try:
        with _opened(path) as file, np.load(file, allow_pickle=False) as arrays:
            joined, sizes = arrays["keys"], arrays["sizes"]
            if len(joined) and len(joined) - np.count_nonzero(joined) + 1 != len(sizes):
                return None
            return RecordedInputs(
                keys=JoinedKeys(joined, len(sizes)) if len(joined) else RowKeys(len(sizes)),
                sizes=sizes,
                stamps=arrays["stamps"],
                labels=arrays.get("labels"),
                splits={
                    name: np.flatnonzero(arrays["split"] == index)
                    for index, name in enumerate(arrays["splits"].tolist())
                },
            )
    except Exception:  # zipfile, its decompressors and NumPy raise almost anything for damaged bytes
        return None


@contextmanager
def _opened(path: AnyPath) -> Iterator[BinaryIO]:
    """Yield the file of the inputs, after checking its size and the sizes of the arrays in it."""
    with open_regular(path) if isinstance(path, Path) else io.BytesIO(read_whole(path, INPUTS)) as file:
        INPUTS.check(size_of(file), path)
        with zipfile.ZipFile(file) as archive:
            INPUTS.check(sum(info.file_size for info in archive.infolist()), path)
        file.seek(0)
        yield file
