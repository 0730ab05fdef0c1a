"""``bench --for-training``: what images cost a training run, by the form in which they are stored."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tfshards.schemas import Manifest, OptionsError
from tfshards.schemas.json_reader import Json
from tfshards.schemas.pixel_files import sides_of
from tfshards.schemas.summary import table

if TYPE_CHECKING:
    import tensorflow as tf

# Images of the sample; a view is drawn of each many times.
_NUM_SAMPLED = 512


@dataclass(frozen=True)
class Form:
    """A form in which images are stored, and how the loader draws views of them."""

    stored: str
    crop: Literal["random", "shift"]

    @property
    def name(self) -> str:
        """Form and view, as the table names them."""
        return f"{self.stored}, {self.crop} crop"


_AS_STORED = "as stored"
_CROPS: tuple[Literal["random", "shift"], ...] = ("random", "shift")
# with words of the command that stores images so
_STORED: Mapping[str, str] = {
    _AS_STORED: "",
    "JPEG for training": "",
    "pixels for training": " --format pixels",
}


def _forms(*, is_pixels: bool) -> list[Form]:
    # a window of large originals would show less of a scene than one of smaller images
    windows = [Form(_AS_STORED, "shift")] if is_pixels else []
    others = [Form(stored, crop) for stored in [*_STORED][1:] for crop in _CROPS]
    return [Form(_AS_STORED, "random"), *windows, *others]


@dataclass(frozen=True, repr=False)
class FormSpeeds:
    """Images per second of wall time and of CPU time, by form; the first form is that of the dataset."""

    dataset: str
    side: int
    rates: Mapping[Form, tuple[float, float]]
    image_bytes: Mapping[str, float]

    @property
    def best(self) -> Form:
        """The form with the most images per CPU second; an earlier one that comes within 5 %."""
        most = max(cpu for _, cpu in self.rates.values())
        return next(form for form, (_, cpu) in self.rates.items() if cpu >= 0.95 * most)

    @property
    def advice(self) -> str:
        """How to get the best form."""
        if self.best.stored == _AS_STORED:
            how = "keep the images as they are"
        else:
            flag = _STORED[self.best.stored]
            how = f"tfshards build --from {self.dataset} --for-training {self.side}{flag} SOURCE NEW_DATASET"
        return f"{how}; then read with Image(({self.side}, {self.side}), crop={self.best.crop!r})"

    def __repr__(self) -> str:
        """Return the table that ``tfshards bench --for-training`` prints."""
        head = (f"views of {self.side} x {self.side}", "bytes", "images/s", "per core", "times as stored")
        (_, usual), *_ = self.rates.values()
        rows = [
            (
                form.name,
                f"{self.image_bytes[form.stored]:,.0f}",
                f"{wall:,.0f}",
                f"{cpu:,.0f}",
                f"{cpu / usual:.2f}",
            )
            for form, (wall, cpu) in self.rates.items()
        ]
        gain = f"fastest: {self.best.name}, {self.rates[self.best][1] / usual:.2f} times as stored"
        return "\n".join([*table([head, *rows]), gain, self.advice])

    def to_json(self) -> dict[str, Json]:
        """Return the same as a JSON object."""
        forms: list[Json] = [
            {
                "stored": form.stored,
                "crop": form.crop,
                "image_bytes": round(self.image_bytes[form.stored]),
                "images_per_second": round(wall, 1),
                "images_per_cpu_second": round(cpu, 1),
            }
            for form, (wall, cpu) in self.rates.items()
        ]
        return {"dataset": self.dataset, "for_training": self.side, "forms": forms, "advice": self.advice}


def compare_forms(
    manifest: Manifest, dataset: str, split: str | None, *, side: int, batch_size: int, seconds: float
) -> FormSpeeds:
    """Measure random views of a sample of a dataset's images, stored in each form.

    Args:
        side: height and width of the views in pixels.
        seconds: time to measure each form.

    Raises:
        OptionsError: the dataset has no image, or the options are not valid.
    """
    names = [feature.name for feature in manifest.schema.features if feature.kind == "image"]
    images = [name for name in names if manifest.schema[name].is_encoded]
    if not images:
        raise OptionsError("bench-size-no-images", size=side, dataset=dataset)
    from tfshards import loader, prep
    from tfshards.loader.speed.bench import check_seconds

    check_seconds(seconds)
    records = loader.Records(dataset, split, select=images[:1])
    step = max(1, len(records) // _NUM_SAMPLED)
    found = [records[index][images[0]] for index in range(0, len(records), step)]
    # an image may be missing
    sample = [{"image": data} for data in found[:_NUM_SAMPLED] if data]
    if not 1 <= batch_size <= len(sample):
        label = f"the sample of {dataset}"
        raise OptionsError("bench-batch-size", batch_size=batch_size, num_examples=len(sample), label=label)
    with tempfile.TemporaryDirectory(prefix="tfshards-bench-") as folder:
        image_bytes: dict[str, float] = {}
        for stored, words in _STORED.items():
            images_of = prep.ImageOptions()
            if stored != _AS_STORED:
                images_of = prep.ImageOptions(for_training=side, format="pixels" if words else "keep")
            source = prep.Examples(sample, images=images_of)
            built = prep.build(source, _folder(folder, stored), shards=1, log=lambda _: None)
            image_bytes[stored] = built.splits["train"].num_bytes / len(sample)
        rates: dict[Form, tuple[float, float]] = {}
        # in turns, so that other work of the machine slows down all of them rather than one
        for _ in range(2):
            for form in _forms(is_pixels=sides_of(sample[0]["image"]) is not None):
                image = loader.Image((side, side), crop=form.crop, flip="horizontal")
                views = loader.load(
                    _folder(folder, form.stored),
                    batch_size=batch_size,
                    image=image,
                    select=["image"],
                    shuffle=loader.Shuffle(seed=0),
                    epochs=None,
                )
                measured = _rates(views, batch_size, seconds / 2)
                rates[form] = max(rates.get(form, measured), measured)
    return FormSpeeds(dataset, side, rates, image_bytes)


def _folder(folder: str, stored: str) -> Path:
    return Path(folder) / stored.replace(" ", "-")


def _rates(views: tf.data.Dataset, batch_size: int, seconds: float) -> tuple[float, float]:
    """Return the examples of an endless dataset per second of wall time, and of CPU time."""
    iterator = iter(views)
    # the first batches wait for what later ones find ready
    for length in (seconds / 4, seconds):
        wall, cpu, count = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - wall < length:
            next(iterator)
            count += batch_size
    return count / (time.perf_counter() - wall), count / (time.process_time() - cpu)
