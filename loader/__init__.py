"""Read a dataset of tfshards as a ``tf.data.Dataset``, on one worker or on many.

>>> from tfshards import loader
>>> train = loader.load("data/photos", "train", batch_size=256, shuffle=loader.Shuffle(seed=0))
"""

try:
    from tfshards.loader.balance import class_weights
    from tfshards.loader.cache import clear_cache
    from tfshards.loader.damaged import DamagedRecord, damaged_records
    from tfshards.loader.distribute import distribute, steps_per_epoch
    from tfshards.loader.examples import Mix, Part
    from tfshards.loader.image_options import Image
    from tfshards.loader.options import Position, Shuffle, Worker
    from tfshards.loader.per_device import DeviceData, per_device
    from tfshards.loader.pipeline import load
    from tfshards.loader.progress import Progress
    from tfshards.loader.resume import Resume
    from tfshards.loader.static import replicate
    from tfshards.loader.wait import InputWait
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tfshards.loader needs {error.name}: pip install 'tfshards[loader]'", name=error.name
    ) from error

__all__ = [
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
    "Worker",
    "class_weights",
    "clear_cache",
    "damaged_records",
    "distribute",
    "load",
    "per_device",
    "replicate",
    "steps_per_epoch",
]
