"""Choose the checkpoint of a folder that a run resumes from, and make saved ones durable.

A ``tf.train.CheckpointManager`` writes data, index and then ``checkpoint``, which names the newest one, and
flushes none of them: after a power cut each of these files may be missing, truncated or full of zeros.
"""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import tensorflow as tf

from tfshards.schemas import InputError
from tfshards.schemas.files import sync_directory

_STATE = "checkpoint"
_FILE = re.compile(r"ckpt-(\d+)\.(?:index|data-\d+-of-\d+)")


def newest_readable(folder: str) -> str | None:
    """Return the prefix of the newest checkpoint that can be read; None if there is none yet.

    Each tensor is read and compared with its checksum. Damaged checkpoints are named in a warning.

    Raises:
        InputError: there are or were checkpoints, but none can be read.
    """
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    numbers = {int(match[1]) for name in names if (match := _FILE.fullmatch(name))}
    found = [f"ckpt-{number}" for number in sorted(numbers, reverse=True)]
    faults = {}
    if _STATE in names:
        named = _named_by_state(folder)
        if named is None:
            faults[os.path.join(folder, _STATE)] = "is empty or damaged"
        else:
            found = [named, *(name for name in found if name != named)]
    for name in found:
        prefix = os.path.join(folder, name)
        fault = _fault(prefix)
        if fault is None:
            if faults:
                _warn(f"{_listed(faults)}; training resumes from {prefix}, which is sound")
            return prefix
        faults[fault[0]] = fault[1]
    if not faults:
        return None
    if _STATE not in names and numbers == {1}:
        _warn(f"{_listed(faults)}: the first checkpoint was not finished; training starts from scratch")
        return None
    raise InputError("checkpoints-unreadable", folder=folder, faults=_listed(faults))


def remove_damaged_state(folder: str) -> None:
    """Remove the file that names the newest checkpoint if it is damaged; TensorFlow would refuse it."""
    path = os.path.join(folder, _STATE)
    if tf.io.gfile.exists(path) and _named_by_state(folder) is None:
        tf.io.gfile.remove(path)


def make_durable(prefix: str) -> None:
    """Flush a saved checkpoint to disk, so that a power cut can damage only one that is saved later.

    It is in a local folder; object stores have nothing to flush.
    """
    folder = Path(prefix).parent
    if not folder.is_dir():
        return
    for path in (*folder.glob(f"{Path(prefix).name}.*"), folder / _STATE):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_directory(folder)


def _named_by_state(folder: str) -> str | None:
    """Return the name of the newest checkpoint according to ``checkpoint``; None if that is damaged."""
    try:
        state = tf.train.get_checkpoint_state(folder)
    except ValueError:
        return None
    return os.path.basename(state.model_checkpoint_path) if state else None


def _fault(prefix: str) -> tuple[str, str] | None:
    """Return the damaged file of a checkpoint and its fault, or None."""
    path = f"{prefix}.index"
    try:
        reader = tf.compat.v1.train.NewCheckpointReader(prefix)
        path = f"{prefix}.data-00000-of-00001"
        for name in reader.get_variable_to_dtype_map():
            reader.get_tensor(name)
    # of truncated data TensorFlow raises IndexError
    except (tf.errors.OpError, IndexError) as error:
        if not tf.io.gfile.exists(path):
            return path, "is missing"
        return path, f"is damaged ({(str(error).splitlines() or [''])[0]})"
    return None


def _listed(faults: dict[str, str]) -> str:
    return ", ".join(f"{path} {fault}" for path, fault in faults.items())


def _warn(text: str) -> None:
    # at the line that creates Resume
    warnings.warn(text, stacklevel=4)
