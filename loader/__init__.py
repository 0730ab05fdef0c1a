"""Read a dataset of tfshards as a ``tf.data.Dataset``, on one worker or on many.

>>> from tfshards import loader
>>> train = loader.load("data/photos", "train", batch_size=256, shuffle=loader.Shuffle(seed=0))
"""

try:
    from tfshards.loader.devices import DeviceData, distribute, per_device, steps_per_epoch
    from tfshards.loader.examples.weights import class_weights
    from tfshards.loader.integrity.damaged import DamagedRecord, damaged_records
    from tfshards.loader.options.image import Boxes, Image
    from tfshards.loader.options.selection import Mix, Part, Position, Shuffle
    from tfshards.loader.options.worker import Worker
    from tfshards.loader.pipeline import load
    from tfshards.loader.speed.bench import Speeds, bench
    from tfshards.loader.training.progress import Progress
    from tfshards.loader.training.resume import Resume
    from tfshards.loader.training.strategies import replicate
    from tfshards.loader.training.wait import InputWait
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"tfshards.loader needs {_error.name}: pip install 'tfshards[loader]'", name=_error.name
    ) from _error

__all__ = [
    "Boxes",
    "DamagedRecord",
    "DeviceData",
    "Image",
    "InputWait",
    "Mix",
    "Part",
    "Position",
    "Progress",
    "Resume",
    "Shuffle",
    "Speeds",
    "Worker",
    "bench",
    "class_weights",
    "damaged_records",
    "distribute",
    "load",
    "per_device",
    "replicate",
    "steps_per_epoch",
]
