"""Read a dataset of tfshards: as a ``tf.data.Dataset``, on one worker or many, or by its records in NumPy.

>>> from tfshards import loader
>>> train = loader.load("data/photos", "train", batch_size=256, shuffle=loader.Shuffle(seed=0))
>>> example = loader.Records("data/photos", "train")[7]

TensorFlow is imported by what needs it, and PyTorch by ``loader.torch``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfshards.loader import torch as torch
    from tfshards.loader.array_batches import Batches as Batches
    from tfshards.loader.array_batches import batches as batches
    from tfshards.loader.distributed import distribute as distribute
    from tfshards.loader.examples.weights import class_weights as class_weights
    from tfshards.loader.options.boxes import Boxes as Boxes
    from tfshards.loader.options.boxes import Keypoints as Keypoints
    from tfshards.loader.options.image import Image as Image
    from tfshards.loader.options.position import Position as Position
    from tfshards.loader.options.selection import Mix as Mix
    from tfshards.loader.options.selection import Part as Part
    from tfshards.loader.options.selection import Shuffle as Shuffle
    from tfshards.loader.options.worker import Worker as Worker
    from tfshards.loader.pipeline import load as load
    from tfshards.loader.random_access import Records as Records
    from tfshards.loader.receipts import Occurrence as Occurrence
    from tfshards.loader.receipts import when as when
    from tfshards.loader.receipts import which as which
    from tfshards.loader.speeds import Speeds as Speeds
    from tfshards.loader.speeds import bench as bench
    from tfshards.loader.tensors.batches import feature_description as feature_description
    from tfshards.loader.training.progress import Progress as Progress
    from tfshards.loader.training.resume import Resume as Resume

# the public names of each module
_NAMES = {
    "array_batches": "Batches batches",
    "distributed": "distribute",
    "examples.weights": "class_weights",
    "options.boxes": "Boxes Keypoints",
    "options.image": "Image",
    "options.position": "Position",
    "options.selection": "Mix Part Shuffle",
    "options.worker": "Worker",
    "pipeline": "load",
    "random_access": "Records",
    "receipts": "Occurrence when which",
    "speeds": "Speeds bench",
    "tensors.batches": "feature_description",
    "training.progress": "Progress",
    "training.resume": "Resume",
}

__all__ = [name for names in _NAMES.values() for name in names.split()]


def __getattr__(name: str) -> object:
    home = next((module for module, names in _NAMES.items() if name in names.split()), None)
    if home is None and name != "torch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{home or name}")
        return getattr(module, name) if home else module
    except ModuleNotFoundError as error:
        extra = "loader" if home else name
        raise ModuleNotFoundError(
            f"tfshards.loader needs {error.name}: pip install 'tfshards[{extra}]'", name=error.name
        ) from error


def __dir__() -> list[str]:
    return [*__all__, "torch"]
