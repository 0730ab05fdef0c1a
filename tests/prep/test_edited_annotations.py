"""remove on datasets with masks or boxes: those that stay belong to the images that stay."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from tfshards import loader
from tfshards.prep import ImageFolder, Table, build, prune, remove, verify
from tfshards.schemas import Manifest

SIDE = (12, 15)
COUNT = 11
# more of them in the first shards than in the others, so that examples move
REMOVED = (0, 1, 2, 7)
KEPT = [number for number in range(COUNT) if number not in REMOVED]


def quiet(_: str) -> None:
    """Drop a status line."""


def photo_of(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (*SIDE, 3), dtype=np.uint8)


def mask_of(number: int) -> np.ndarray:
    return np.random.default_rng(100 + number).integers(0, 4, (*SIDE, 1), dtype=np.uint8)


def boxes_of(number: int) -> list[list[float]]:
    return [[index, number % 5, 2, 1 + number % 3] for index in range(number % 4)]


def save(pixels: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.squeeze()).save(path)


def delivered(out: Path, **options: object) -> dict[int, dict[str, np.ndarray]]:
    """Return what the loader delivers of each example, by the number in its key."""
    image = loader.Image(size=SIDE, method="nearest")
    found = {}
    for batch in loader.load(out, "train", batch_size=1, image=image, **options):
        key, values = batch["key"].numpy()[0], {name: value[0].numpy() for name, value in batch.items()}
        found[int(Path(key.decode()).stem)] = values
    return found


def is_edited(made: Manifest, out: Path) -> bool:
    """Prune the dataset; return whether it is sound, and as balanced as before."""
    prune(out)
    sizes = sorted(shard.num_examples for shard in made.shards)
    return sizes == [2, 2, 3] and bool(verify(out, deep=True, decode=True))


def test_the_masks_that_stay_are_those_of_the_images_that_stay(tmp_path):
    for number in range(COUNT):
        save(photo_of(number), tmp_path / "data" / "images" / f"{number:02}.png")
        save(mask_of(number), tmp_path / "data" / "masks" / f"{number:02}.png")
    out = tmp_path / "out"
    build(ImageFolder(tmp_path / "data"), out, shards=3, engine="local", log=quiet)
    assert is_edited(remove(out, [f"images/{number:02}.png" for number in REMOVED], log=quiet), out)
    found = delivered(out)
    assert sorted(found) == KEPT
    for number, values in found.items():
        assert np.array_equal(values["image"], photo_of(number))
        assert np.array_equal(values["mask"], mask_of(number))


def test_the_boxes_that_stay_are_those_of_the_images_that_stay(tmp_path):
    for number in range(COUNT):
        save(photo_of(number), tmp_path / f"{number:02}.png")
    rows = [
        {
            "file_name": f"{number:02}.png",
            "objects": {"bbox": boxes_of(number), "categories": [number % 3] * (number % 4)},
        }
        for number in range(COUNT)
    ]
    table = tmp_path / "metadata.jsonl"
    table.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    out = tmp_path / "out"
    build(Table(table), out, shards=3, engine="local", log=quiet)
    assert is_edited(remove(out, [f"{number:02}.png" for number in REMOVED], log=quiet), out)
    found = delivered(out, boxes=loader.Boxes("objects/bbox", "xywh", ("objects/categories",)))
    assert sorted(found) == KEPT
    for number, values in found.items():
        assert np.array_equal(values["image"], photo_of(number))
        assert values["objects/bbox"].tolist() == boxes_of(number)
        assert values["objects/categories"].tolist() == [number % 3] * (number % 4)
