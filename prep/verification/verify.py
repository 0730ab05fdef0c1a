"""Verify a dataset, or repair what follows from its shards and its manifest."""

from __future__ import annotations

import os

from tfshards.prep.verification.faults import find_faults
from tfshards.prep.verification.repair import repair as repaired
from tfshards.prep.verification.report import VerificationReport
from tfshards.schemas import OptionsError


def verify(
    dataset: str | os.PathLike[str], *, deep: bool = False, decode: bool = False, repair: bool = False
) -> VerificationReport:
    """Compare a dataset with its manifest, and report every problem.

    The size and digest of every file (shards, indexes, labels, keys, rejects, views) are compared with the
    manifest, and the manifest with its own digest.

    Args:
        dataset: folder of the dataset, or its URL.
        deep: also read every record, and check its checksums, its features against the schema, its length,
            label and key against the index and the files of labels and keys; and, over all shards whose
            records are sound, repeated keys and label counts. Reading continues after damage.
        decode: also decode every image, and compare it with the schema; implies "deep".
        repair: rebuild damaged indexes, labels, keys and views, which follow from the shards and the
            manifest, and print the command that writes damaged shards again.

    Returns:
        The report, which is true if the dataset is sound.

    Raises:
        OptionsError: ``repair`` is given with ``deep`` or ``decode``.
        InputError: ``dataset`` is not a dataset, or another process is writing to it.
        FormatError: the manifest cannot be read: `tfshards restore` or a build with `--overwrite` replaces
            it.
        ModuleNotFoundError: ``decode`` needs Pillow, which is not installed.
    """
    if repair:
        if deep or decode:
            name = "deep" if deep else "decode"
            raise OptionsError(
                f"{name}=True reads all records, which repair=True does not; repair first, then verify again "
                f"with {name}=True"
            )
        return repaired(dataset)
    return find_faults(dataset, deep=deep, decode=decode)
