"""The commands of recipes in docs/how-to.md run as they are printed, on data in the layout that they name."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from tfshards import loader, prep
from tfshards.prep import build
from tfshards.prep.cli import main as cli
from tfshards.schemas import read_manifest

HOW_TO = (Path(__file__).parents[1] / "docs" / "how-to.md").read_text()


def commands(question):
    """The arguments of each command in the section that answers a question."""
    _, _, section = HOW_TO.partition(f"\n### {question}\n")
    section = section.partition("\n#")[0]
    found = [shlex.split(line) for line in re.findall(r"^    tfshards (.+)$", section, re.M)]
    assert found, question
    return found


def test_pipelines_that_end_with_write_shards_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    photos("photos/cat/1.jpg", "photos/dog/2.jpg")
    _, _, section = HOW_TO.partition("\n### How do I write shards from my own Beam pipeline?\n")
    first, again = re.findall(r"^```python\n(.*?)^```$", section.partition("\n#")[0], re.M | re.S)
    names = {"__name__": "recipe"}
    for program in (first, again):
        exec(program, names)
    gray = read_manifest("data/gray")
    assert sorted(shard.num_examples for shard in gray.shards) == [12] * 4 + [13] * 4
    assert gray.schema.class_names == ("bright", "dark")
    assert read_manifest("data/again").schema.class_names == ("cat", "dog")


def photos(*names):
    for number, name in enumerate(names):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(path)


def digits():
    arrays = {
        "x_train": np.zeros((6, 2, 2)),
        "y_train": np.arange(6),
        "x_test": np.ones((3, 2, 2)),
        "y_test": [0, 1, 2],
    }
    np.savez("mnist.npz", **arrays)
    for name, array in zip("ABCD", arrays.values(), strict=True):
        np.save(f"{name}.npy", array)


def two_datasets():
    for split in ("train", "test"):
        photos(*(f"{split}/cat/{number}.png" for number in range(3)))
        assert cli.main(["build", "images", split, f"data/{split}"]) == 0


def patients():
    names = [f"photos/{('cat', 'dog')[n // 2 % 2]}/p{n // 2}/patient{n // 2}_{n}.png" for n in range(40)]
    photos(*names)
    rows = [f"{name},{number // 2}" for number, name in enumerate(names)]
    Path("scans.csv").write_text("\n".join(["file_name,patient", *rows]))


def hugging_face():
    photos(*(f"photos/{number}.png" for number in range(32)))
    objects = {"bbox": [[0, 0, 4, 4]], "categories": [1]}
    rows = [{"file_name": f"{number}.png", "objects": objects} for number in range(32)]
    Path("photos/metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = {"names": ["oak", "elm"], "_type": "ClassLabel"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"fine_label": names}}})}
    Path("repository/data").mkdir(parents=True)
    for name, count in {
        "train-00000-of-00002": 3,
        "train-00001-of-00002": 2,
        "test-00000-of-00001": 1,
    }.items():
        images = [{"bytes": Path("photos/0.png").read_bytes(), "path": None}] * count
        table = pa.table({"image": images, "fine_label": [1] * count, "coarse_label": [0] * count})
        pa.parquet.write_table(table.replace_schema_metadata(metadata), f"repository/data/{name}.parquet")


def annotations():
    photos("train2017/1.png", "train2017/2.png")
    box = {"id": 1, "image_id": 7, "category_id": 3, "bbox": [0, 0, 2, 2], "area": 4, "iscrowd": 0}
    images = [{"id": 7, "file_name": "1.png"}, {"id": 8, "file_name": "2.png"}]
    coco = {"images": images, "annotations": [box], "categories": [{"id": 3, "name": "car"}]}
    for path in (Path("instances_train2017.json"), Path("coco/annotations/instances_train2017.json")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(coco))
    photos("coco/train2017/1.png", "coco/train2017/2.png")
    for split in ("train", "val"):
        photos(f"coco8/images/{split}/1.png", f"coco8/images/{split}/2.png")
        Path(f"coco8/labels/{split}").mkdir(parents=True)
        Path(f"coco8/labels/{split}/1.txt").write_text("0 0.5 0.5 0.25 0.5\n")
    Path("coco8/data.yaml").write_text("path: coco8\ntrain: images/train\nval: images/val\nnames: {0: car}\n")
    photos(*(f"photos/{number}.png" for number in range(10)))
    for number in range(10):
        Path(f"photos/{number}.txt").write_text("0 0.5 0.5 0.25 0.5\n")


def captions():
    photos(*(f"photos/{number}.png" for number in range(10)))
    rows = [f"{spelling}{number}.png,a {number}" for number in range(10) for spelling in ("", "./")]
    Path("captions.csv").write_text("\n".join(["file_name,caption", *rows]))


def arrays():
    values = {"IMAGES": np.zeros((4, 2, 2)), "LABELS": [0, 1, 0, 1], "fold": [0, 0, 0, 1]}
    values |= {
        "images": values["IMAGES"],
        "labels": values["LABELS"],
        "X": values["IMAGES"],
        "y": [31, 27, 60, 4],
    }
    values |= {
        "split": ["train", "train", "val", "train"],
        "x-0": np.zeros(2),
        "x-1": np.zeros(1),
        "x-2": np.zeros(1),
    }
    for name, array in values.items():
        np.save(f"{name}.npy", array)
    np.savez("DATA.npz", image=values["IMAGES"], label=values["LABELS"])


# question -> what prepares the inputs, and the examples by split of the dataset that each command makes
RECIPES = {
    "How do I choose classes and splits?": (
        lambda: photos(*(f"photos/{kind}/{number}.png" for kind in ("cat", "dog") for number in range(10))),
        {"photos": {"train": 16, "val": 2, "test": 2}},
    ),
    "How do I build from split folders with other names?": (
        lambda: photos("photos/Train_2024/cat/1.png", "photos/holdout/cat/2.png", "photos/old/3.png"),
        {"photos": {"train": 1, "test": 1}},
    ),
    "How do I build from a Kaggle competition, whose test images have no classes?": (
        lambda: photos(
            "competition/train/cat/1.jpg", "competition/train/dog/2.jpg", "competition/test/3.jpg"
        ),
        {"competition": {"train": 2, "test": 1}},
    ),
    "How do I leave files out?": (
        lambda: photos(
            "photos/cat/1.jpg", "photos/cat/1_thumb.jpg", "photos/drafts/2.jpg", "photos/cat/3.bmp"
        ),
        {"photos": {"train": 3}},
    ),
    "How do I keep images of one patient or video in one split?": (
        patients,
        {"photos": {"train": 36, "val": 4}, "scans": {"train": 36, "val": 4}},
    ),
    "How do I build from arrays?": (
        arrays,
        {"arrays": {"train": 3, "val": 1}, "ages": {"0": 3, "1": 1}},
    ),
    "How do I build from a dataset of Hugging Face?": (
        hugging_face,
        {"photos": {"train": 32}, "repository": {"train": 5, "test": 1}, "fine": {"train": 5}},
    ),
    "How do I build from COCO or YOLO?": (
        annotations,
        {
            "coco": {"train": 2},
            "train2017": {"train": 2},
            "coco8": {"train": 2, "val": 2},
            "photos": {"train": 9, "val": 1},
        },
    ),
    "How do I build from several captions per image?": (captions, {"captions": {"train": 18, "val": 2}}),
    "How do I build from arrays of several splits, such as Keras's mnist.npz?": (
        digits,
        {"mnist": {"train": 6, "test": 3}, "digits": {"train": 6, "test": 3}},
    ),
    "How do I make one dataset of datasets that are its splits?": (
        two_datasets,
        {"photos": {"train": 3, "test": 3}},
    ),
}


@pytest.mark.parametrize("question", RECIPES)
def test_the_commands_of_a_recipe_make_the_dataset_that_it_describes(question, tmp_path, monkeypatch):
    prepare, made = RECIPES[question]
    monkeypatch.chdir(tmp_path)
    # Beam is not what these recipes are about
    monkeypatch.setitem(build.__kwdefaults__, "engine", "local")
    prepare()
    for arguments in commands(question):
        # the commands of a recipe are alternatives
        more = ["--overwrite"] if arguments[0] == "build" else []
        assert cli.main([*arguments, *more]) == 0, arguments
    for name, examples in made.items():
        splits = read_manifest(tmp_path / "data" / name).splits
        assert {split: held.num_examples for split, held in splits.items()} == examples


def test_the_recipe_of_boxes_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hugging_face()
    prep.build(prep.Table("photos"), "data/photos", engine="local")
    _, _, section = HOW_TO.partition("\n### How do I load boxes?\n")
    lines = re.findall(r"^    (.+)$", section.partition("\n#")[0], re.M)
    names = {"loader": loader}
    exec("\n".join(lines), names)
    (batch,) = names["train"]
    assert batch["image"].shape == (32, 224, 224, 3)
    # each box is the whole image
    assert batch["objects/bbox"].to_list() == [[[0, 0, 224, 224]]] * 32
    assert batch["objects/categories"].to_list() == [[1]] * 32


def test_exports_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    photos("photos/cat/1.jpg", "photos/dog/2.jpg")
    build(prep.ImageFolder("photos"), "data/photos", shards=1, log=lambda _: None)
    Path("exported").mkdir()
    for command in commands("How do I export the dataset to another format?"):
        assert cli.main(command) == 0
    assert pyarrow.parquet.read_table("exported/photos/data").num_rows == 2
    assert sorted(path.name for path in Path("exported/unlabeled").glob("*.tar")) == [
        "photos-train-000000.tar"
    ]


def test_the_recipes_of_editing_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    photos(*(f"photos/{('cat', 'dog')[number % 2]}/{number:03}.jpg" for number in range(8)))
    Path("photos/cat/000-copy.jpg").write_bytes(Path("photos/cat/000.jpg").read_bytes())
    build(prep.ImageFolder("photos"), "data/photos", engine="local", log=lambda _: None)
    Path("labels.csv").write_text("key,label\ncat/002.jpg,dog\n")
    questions = (
        "How do I remove examples?",
        "How do I delete a person's pictures?",
        "How do I correct labels?",
    )
    for question in questions:
        for command in commands(question):
            if "audit" in command:
                command += ["--distance", "none"]
            assert cli.main(command) == 0, command
    made = read_manifest("data/photos")
    assert made.splits["train"].label_counts == {"cat": 3, "dog": 5}
    assert prep.verify("data/photos", deep=True)
    ((verb, *_),) = commands("How do I compare two datasets?")
    assert verb == "diff"
