"""remove on datasets with masks or boxes: those that stay belong to the images that stay."""

from pathlib import Path

import numpy as np
from PIL import Image

from tests.prep.table_files import write_jsonl
from tfshards import loader
from tfshards.prep import ImageFolder, Table, build, prune, remove, verify

SIDE = (12, 15)
COUNT = 11
# more of them in the first shards than in the others, so that examples move
REMOVED = (0, 1, 2, 7)
KEPT = [number for number in range(COUNT) if number not in REMOVED]
QUIET = {"log": lambda _: None}


def pixels(number: int, *, mask: bool = False) -> np.ndarray:
    rng = np.random.default_rng(number + 100 * mask)
    return rng.integers(0, 4 if mask else 256, (*SIDE, 1 if mask else 3), dtype=np.uint8)


def boxes_of(number: int) -> list[list[float]]:
    return [[index, number % 5, 2, 1 + number % 3] for index in range(number % 4)]


def save(folder: Path, *, mask: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(COUNT):
        Image.fromarray(pixels(number, mask=mask).squeeze()).save(folder / f"{number:02}.png")


def edited(source: object, keys: str, out: Path, **options: object) -> dict[int, dict[str, np.ndarray]]:
    """Build, remove and prune; return what the loader delivers of each example, by the number in its key."""
    build(source, out, shards=3, engine="local", **QUIET)
    made = remove(out, [keys.format(number) for number in REMOVED], **QUIET)
    prune(out)
    assert sorted(shard.num_examples for shard in made.shards) == [2, 2, 3]
    assert verify(out, deep=True, decode=True)
    image = loader.Image(size=SIDE, method="nearest")
    found = {}
    for batch in loader.load(out, "train", batch_size=1, image=image, **options):
        key, values = batch["key"].numpy()[0], {name: value[0].numpy() for name, value in batch.items()}
        found[int(Path(key.decode()).stem)] = values
    assert sorted(found) == KEPT
    assert all(np.array_equal(values["image"], pixels(number)) for number, values in found.items())
    return found


def test_the_masks_that_stay_are_those_of_the_images_that_stay(tmp_path):
    save(tmp_path / "data" / "images")
    save(tmp_path / "data" / "masks", mask=True)
    found = edited(ImageFolder(tmp_path / "data"), "images/{:02}.png", tmp_path / "out")
    assert all(np.array_equal(values["mask"], pixels(number, mask=True)) for number, values in found.items())


def test_the_boxes_that_stay_are_those_of_the_images_that_stay(tmp_path):
    save(tmp_path / "data")
    objects = [{"bbox": boxes_of(n), "categories": [n % 3] * (n % 4)} for n in range(COUNT)]
    rows = [{"file_name": f"{n:02}.png", "objects": each} for n, each in enumerate(objects)]
    table = write_jsonl(tmp_path / "data" / "metadata.jsonl", rows)
    boxes = loader.Boxes("objects/bbox", "xywh", ("objects/categories",))
    for number, values in edited(Table(table), "{:02}.png", tmp_path / "out", boxes=boxes).items():
        assert values["objects/bbox"].tolist() == boxes_of(number)
        assert values["objects/categories"].tolist() == [number % 3] * (number % 4)
