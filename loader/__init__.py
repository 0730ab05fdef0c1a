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
    from tfshards.loader.array_batches import Batches, batches
    from tfshards.loader.devices import distribute
    from tfshards.loader.examples.weights import class_weights
    from tfshards.loader.options.boxes import Boxes, Keypoints
    from tfshards.loader.options.image import Image
    from tfshards.loader.options.position import Position
    from tfshards.loader.options.selection import Mix, Part, Shuffle
    from tfshards.loader.options.worker import Worker
    from tfshards.loader.pipeline import load
    from tfshards.loader.random_access import Records
    from tfshards.loader.receipts import Occurrence, when, which
    from tfshards.loader.speeds import Speeds, bench
    from tfshards.loader.tensors.description import feature_description
    from tfshards.loader.training.progress import Progress
    from tfshards.loader.training.resume import Resume

# the public names of each module
_NAMES = {
    "array_batches": "Batches batches",
    "devices": "distribute",
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
    "tensors.description": "feature_description",
    "training.progress": "Progress",
    "training.resume": "Resume",
}

__all__ = [
    "Batches",
    "Boxes",
    "Image",
    "Keypoints",
    "Mix",
    "Occurrence",
    "Part",
    "Position",
    "Progress",
    "Records",
    "Resume",
    "Shuffle",
    "Speeds",
    "Worker",
    "batches",
    "bench",
    "class_weights",
    "distribute",
    "feature_description",
    "load",
    "when",
    "which",
]


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
