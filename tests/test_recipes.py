"""The commands of recipes in docs/how-to.md run as they are printed, on data in the layout that they name."""

import itertools
import json
import pickle
import re
import shlex
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from tests.tables import mostly_nightly
from tfshards import loader, prep
from tfshards.command import VERBS
from tfshards.prep import build
from tfshards.prep.cli import main as cli
from tfshards.schemas import read_manifest

DOCS = Path(__file__).parents[1] / "docs"
HOW_TO, BEAM = ((DOCS / name).read_text() for name in ("how-to.md", "beam.md"))


def sections(text):
    """Return the body of each section by its heading."""
    parts = re.split(r"^#{2,3} (.+)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text):
    """Return the words of each command in a text; without comments, redirections and options of Beam."""
    shells = "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S))
    lines = [
        *re.findall(r"^ {4}tfshards ((?:[^\n\\]|\\\n|\\.)+)$", text, re.M),
        *re.findall(r"^tfshards ((?:[^\n\\]|\\\n|\\.)+)$", shells, re.M),
    ]
    found = [shlex.split(line.replace("\\\n", " "), comments=True) for line in lines]
    return [
        [*itertools.takewhile(lambda word: word not in ("--", ">", "2>", "||"), words)] for words in found
    ]


def python(text):
    """Return the lines of Python in a section of docs/how-to.md."""
    blocks = re.findall(r"(?:^(?: {4}.*)?\n)+", text, re.M)
    code = [textwrap.dedent(block) for block in blocks if block.strip()]
    return "\n".join(block for block in code if not block.lstrip().startswith(("tfshards", "pip ")))


def test_the_loops_that_export_a_dataset_run_as_printed(tmp_path, monkeypatch):
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    monkeypatch.chdir(tmp_path)
    dataset_and_folder()
    exec(python(sections(HOW_TO)["How do I export the dataset to another format?"]), {})
    rows = [*loader.Records("data/photos", "train")]
    files = sorted(Path("exported/folder/train").rglob("*.jpg"), key=lambda path: path.name)
    assert [path.read_bytes() for path in files] == [row["image"] for row in rows]
    assert {path.parent.name for path in files} == {"cat", "dog"}
    with ArrayRecordDataSource("exported/train.array_record") as source:
        assert [pickle.loads(each) for each in source.__getitems__(range(len(source)))] == rows


def test_what_tfds_reads_is_built_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    two_classes()
    photos(*(f"masks/{path.relative_to('photos')}" for path in Path("photos").rglob("*.png")))
    for path in Path("masks").rglob("*.png"):
        Image.open(path).convert("L").save(path)
    run("build images photos elsewhere --mask-dir ../masks --split train=0.9 --split val=0.1")
    exec(python(sections(HOW_TO)["How do I use TFRecord files written by another tool?"]), {})
    built = read_manifest("data/copied")
    assert {feature.name: feature.kind for feature in built.schema.features} == {
        "image": "image",
        "key": "bytes",
        "label": "label",
        "mask": "mask",
    }
    assert built.num_examples == read_manifest("elsewhere").splits["train"].num_examples


def test_pipelines_that_end_with_write_shards_run_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, _, section = BEAM.partition("\n## WriteShards\n")
    blocks = re.findall(r"^```python\n(.*?)^```$", section.partition("\n## ")[0], re.M | re.S)
    first, counters = blocks
    names = {"__name__": "recipe"}
    exec(first, names)
    gray = read_manifest("data/gray")
    assert f"written: {gray.build_id}\n" in capsys.readouterr().out
    assert sorted(shard.num_examples for shard in gray.shards) == [12] * 4 + [13] * 4
    assert gray.schema.class_names == ("bright", "dark")
    exec(counters, names)
    assert names["counts"] == {"accepted": 100, "rejected": 0}


def test_pipelines_of_the_page_about_beam_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    two_classes(count=20)
    Image.new("RGB", (8, 8)).save("photos/cat/dark.png")
    options = prep.Options(splits={"train": 0.7, "val": 0.3})
    build(prep.ImageFolder("photos"), "data/photos", shards=2, options=options, log=lambda _: None)
    names = {"__name__": "recipe"}
    for program in re.findall(r"^```python\n(.*?)^```$", BEAM.partition("## ReadShards")[2], re.M | re.S):
        exec(program, names)
    one, parts = read_manifest("data/bright"), read_manifest("data/bright-parts")
    assert one.num_examples < parts.num_examples == 20
    assert {*parts.splits} == {"train", "val"}
    assert one.schema.class_names == parts.schema.class_names == ("cat", "dog")


def photos(*names):
    for number, name in enumerate(names):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (8, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)


def run(line):
    assert cli.main(shlex.split(line), VERBS) == 0, line


def two_classes(folder="photos", count=90, start=0):
    photos(*(f"{folder}/{('cat', 'dog')[n % 2]}/{n + start}.png" for n in range(count)))


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


def datasets_of_splits():
    for split in ("train", "test"):
        photos(*(f"{split}/{number % 2}/{number}.png" for number in range(3)))
        run(f"build images {split} data/{split}")


def patients():
    # two are not in a folder of their patient
    folders = [f"{('cat', 'dog')[n // 2 % 2]}{f'/p{n // 2}' if n > 1 else ''}" for n in range(40)]
    names = [f"photos/{folder}/patient{n // 2}_{n}.png" for n, folder in enumerate(folders)]
    photos(*names)
    rows = [f"{name},{number // 2}" for number, name in enumerate(names)]
    Path("scans.csv").write_text("\n".join(["file_name,patient", *rows]))


def hugging_face():
    photos(*(f"photos/{number}.png" for number in range(32)))
    objects = {"bbox": [[0, 0, 12, 8]], "categories": [1]}
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


def tables_of_boxes():
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["1.png", "2.png"]
    photos(*names)
    boxes = [{"file_name": name, "objects": {"bbox": [[0, 0, 1, 1]]}} for name in names]
    Path("boxes.jsonl").write_text("".join(json.dumps(each) + "\n" for each in boxes))
    Path("train.csv").write_text("file_name,xmin,ymin,xmax,ymax\n1.png,0,0,1,1\n2.png,0,0,2,2\n")
    points = [[{"keypoints": [0, 1, 2, 0, 0, 0]}]] * 2
    pq.write_table(pa.table({"file_name": names, "objects": points}), "pose.parquet")


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
    values["split"] = ["train", "train", "val", "train"]
    for name, array in values.items():
        np.save(f"{name}.npy", array)
    np.savez("DATA.npz", image=values["IMAGES"], label=values["LABELS"])


def class_files():
    two_classes(count=4)
    two_classes("new_photos", count=4)
    Path("classes.txt").write_text("dog\ncat\n")


def tables():
    photos("photos/1.png", "photos/2.png")
    Image.new("L", (12, 8)).save("photos/mask.png")
    Path("photos/metadata.csv").write_text("file_name,label\n1.png,a\n2.png,b\n")
    rows = {
        "left": ["1.png", "2.png"],
        "outline": ["mask.png"] * 2,
        "species": ["a", "b"],
        "comment": ["", ""],
    }
    pa.parquet.write_table(pa.table(rows), "rows.parquet")


def ids_of_files():
    photos("images_1/01.jpg", "images_2/02.jpg")
    Path("ids.csv").write_text("id,label\n01,cat\n02,dog\n")


def text_tables():
    photos("birds/images/a/1.png", "birds/images/b/2.png", "x.png", "y.png")
    Path("birds/images.txt").write_text("1 a/1.png\n2  b/2.png\n")
    Path("birds/labels.txt").write_text("1 1\n2 2\n")
    Path("birds/classes.txt").write_text("1 Albatross\n2 Auklet\n")
    Path("boxes.csv").write_text("file_name,LabelName,XMin\nx.png,a,0.5\ny.png,b,0.25\nx.png,b,0.75\n")
    Path("sizes.csv").write_text("file_name,width\nx.png,8\ny.png,8\n")
    Path("semicolons.csv").write_text("file_name;caption\nx.png;a cat, a dog\ny.png;a bird\n")


def lists_of_files():
    names = ["pie/1", "pie/2", "soup/3"]
    photos(*(f"{root}/images/{name}.jpg" for root in ("food-101", "caltech") for name in names))
    for folder, suffixes in {
        "food-101/meta": ["", "", ""],
        "caltech": [".jpg 0", ".jpg 0", ".jpg 1"],
    }.items():
        lines = [name + suffix for name, suffix in zip(names, suffixes, strict=True)]
        Path(folder).mkdir(exist_ok=True)
        for split, part in {"train": lines[:2], "test": lines[2:], "val": lines[2:]}.items():
            Path(folder, f"{split}.txt").write_text("\n".join(part))
    Path("caltech/names.txt").write_text("pie\nsoup\n")


def rows_of_several_images():
    photos("a1.png", "a2.png", "b1.png", "b2.png")
    rows = [{"views": ["a1.png", "a2.png"], "age": 31}, {"views": ["b1.png", "b2.png"], "age": 27}]
    Path("studies.jsonl").write_text("\n".join(map(json.dumps, rows)))
    exec(python(sections(HOW_TO)["How do I build from a table with several images per row?"]), {})


def rows_of_several_classes():
    names = [f"00000{number}.jpg" for number in range(3)]
    photos(*(f"chest/images/{n}" for n in names), *(f"celeba/img_align_celeba/{name}" for name in names))
    findings = ("Effusion|Mass", "No Finding", "Mass")
    rows = [f"{name},{finding}" for name, finding in zip(names, findings, strict=True)]
    Path("chest/Data_Entry_2017.csv").write_text("\n".join(["Image Index,Finding Labels", *rows]))
    rows = [f"{name} -1  1 -1" for name in names]
    Path("celeba/list_attr_celeba.txt").write_text("\n".join(["3", "Bald Male Young", *rows]))


def rows_without_values():
    Path("rows.csv").write_text(
        "label,age,city,height\ncat,1,Ulm,2\n,,,2\n" + "dog,3,Bonn,4\n" * 198 + "cat,1,,\n"
    )


def dataset():
    two_classes()
    run("build images photos data/photos --split train=0.9 --split val=0.1")


def large_dataset():
    two_classes(count=720)
    run("build images photos data/photos --split train=0.9 --split val=0.1")


def dataset_and_table():
    dataset()
    Path("list.jsonl").write_text('{"file_name": "cat/0.png"}\n{"file_name": "dog/1.png"}\n')
    run("build table list.jsonl data/list --root photos")


def dataset_table_and_arrays():
    dataset_and_table()
    for name in ("IMAGES", "LABELS"):
        np.save(f"{name}.npy", np.arange(6))
    run("build arrays image=IMAGES.npy label=LABELS.npy data/arrays")
    two_classes("photos", count=4, start=200)


def options_in_a_file():
    two_classes()
    body = sections(HOW_TO)["How do I keep the options of a build in a file?"]
    Path("build.toml").write_text(re.search(r"^```toml\n(.*?)^```$", body, re.M | re.S)[1])


def two_datasets():
    dataset()
    two_classes("more", count=8, start=500)
    run("build images more data/more --split train=0.5 --split val=0.5")


def dataset_and_folder():
    dataset()
    Path("exported").mkdir()


def records():
    np.save("digit.npy", np.arange(6) % 2)
    np.save("debug.npy", np.arange(6))
    run("build arrays digit.npy debug.npy data/digits --shards 2 --label ''")
    Path("DIR").mkdir()
    for number, path in enumerate(sorted(Path("data/digits").glob("*.tfrecord-*"))):
        path.rename(f"DIR/part-{number}0.tfrecord")


# question -> what prepares the inputs, and the examples by split of the datasets that the commands make
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
            "photos/cat/1.jpg", "photos/cat/1_thumb.jpg", "photos/drafts/2.jpg", "photos/dog/3.bmp"
        ),
        {"photos": {"train": 3}},
    ),
    "How do I keep images of one patient or video in one split?": (
        patients,
        {"photos": {"train": 36, "val": 4}, "scans": {"train": 36, "val": 4}},
    ),
    "How do I build from arrays?": (arrays, {"arrays": {"train": 3, "val": 1}, "ages": {"0": 3, "1": 1}}),
    "How do I build from a dataset of Hugging Face?": (
        hugging_face,
        {"photos": {"train": 32}, "repository": {"train": 5, "test": 1}, "fine": {"train": 5}},
    ),
    "How do I declare boxes and keypoints?": (
        tables_of_boxes,
        {"photos": {"train": 2}, "train": {"train": 2}, "pose": {"train": 2}},
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
        datasets_of_splits,
        {"photos": {"train": 3, "test": 3}},
    ),
    "How do I keep class numbers fixed?": (class_files, {}),
    "How do I build from a table?": (tables, {}),
    "How do I build from a table whose paths are not those of the files?": (
        ids_of_files,
        {"images": {"train": 2}},
    ),
    "How do I build from text tables without headers, or from several tables?": (
        text_tables,
        {"birds": {"train": 2}, "objects": {"train": 2}, "commas": {"train": 2}},
    ),
    "How do I build from lists of files?": (
        lists_of_files,
        {"food": {"train": 2, "test": 1}, "caltech": {"train": 2, "val": 1}},
    ),
    "How do I build from a table with several images per row?": (
        rows_of_several_images,
        {"studies": {"train": 2}},
    ),
    "How do I build from a table with several classes per row?": (
        rows_of_several_classes,
        {"chest": {"train": 3}, "celeba": {"train": 3}},
    ),
    "How do I build from a table with missing values?": (rows_without_values, {"rows": {"train": 200}}),
    "How do I make images smaller while building?": (two_classes, {}),
    "How do I train on crops of large photos?": (lambda: two_classes("scans", count=4), {}),
    "How do I deal with rejected files?": (dataset, {}),
    "How do I remove duplicates?": (two_classes, {}),
    "How do I keep the options of a build in a file?": (options_in_a_file, {}),
    "How do I rebuild a dataset that is in use?": (dataset, {}),
    "How do I repair a damaged dataset?": (dataset_and_table, {}),
    "How do I change the number of shards?": (large_dataset, {}),
    "How do I merge datasets?": (two_datasets, {}),
    "How do I add new examples?": (dataset_table_and_arrays, {}),
    "How do I use TFRecord files written by another tool?": (records, {}),
    "How do I know before I build?": (two_classes, {"sample": {"train": 18}}),
    "How do I find out what limits reading?": (large_dataset, {}),
    "How do I export the dataset to another format?": (dataset_and_folder, {}),
    "How do I get a page that shows a dataset?": (dataset, {}),
}


# the others are slow, or build again what these build
EACH_TIME = [
    "How do I keep the options of a build in a file?",
    *(question for question, (_, made) in RECIPES.items() if made),
]


@pytest.mark.parametrize("question", mostly_nightly(RECIPES, EACH_TIME))
def test_the_commands_of_a_recipe_make_the_dataset_that_it_describes(question, tmp_path, monkeypatch):
    prepare, made = RECIPES[question]
    monkeypatch.chdir(tmp_path)
    # Beam is not what these recipes are about
    monkeypatch.setitem(build.__wrapped__.__kwdefaults__, "engine", "local")
    prepare()
    for block in re.findall(r"^```python\n(.*?)^```$", sections(HOW_TO)[question], re.M | re.S):
        # what makes the tables of the commands
        if "pandas" in block:
            exec(block, {})
    found = commands(sections(HOW_TO)[question])
    assert found
    for number, words in enumerate(found):
        # of commands for one dataset all but the first are alternatives
        is_alternative = number > 0 and words[0] in ("build", "adopt") and "--config" not in words
        more = ["--overwrite"] if is_alternative and "--overwrite" not in words else []
        run(shlex.join([*words, *more]))
    for name, examples in made.items():
        splits = read_manifest(tmp_path / "data" / name).splits
        assert {split: held.num_examples for split, held in splits.items()} == examples


def test_the_recipe_of_an_array_with_fields_runs_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.array([(1, 0.5), (0, 2.0)], [("label", "u1"), ("weight", "f4")])
    np.save("rows.npy", rows)
    run_blocks("How do I build from an array with fields?")
    assert read_manifest("data/rows").splits["train"].label_counts == {"0": 1, "1": 1}
    (batch,) = loader.batches("data/rows", "train", batch_size=2)
    assert {*zip(batch["label"].tolist(), batch["weight"].tolist(), strict=True)} == {(1, 0.5), (0, 2.0)}


def test_the_recipe_of_an_array_in_several_files_runs_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(12):
        np.save(f"image-{number}.npy", np.full((2, 8, 8), number, np.uint8))
        np.save(f"label-{number}.npy", np.array([number, number]))
    run_blocks("How do I build from an array in several files?")
    assert read_manifest("data/parts").splits["train"].num_examples == 24
    for batch in loader.batches("data/parts", "train", batch_size=24):
        assert batch["label"].tolist() == [int(key) // 2 for key in batch["key"]]
        assert (batch["image"] == batch["label"][:, None, None]).all()


def run_blocks(question):
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```$", sections(HOW_TO)[question], re.M | re.S):
        exec(block, names)


def test_the_recipe_of_class_numbers_compares_the_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    two_classes()
    run("build images photos data/photos")
    exec(python(sections(HOW_TO)["How do I keep class numbers fixed?"]), {})


def test_the_recipe_of_boxes_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hugging_face()
    roles = prep.ColumnRoles(boxes={"objects/bbox": "xywh"})
    prep.build(prep.Table("photos", columns=roles), "data/photos", engine="local")
    _, _, section = HOW_TO.partition("\n### How do I load boxes and keypoints?\n")
    # keypoints of a dataset that these images have not
    lines = re.findall(r"^    (.+)$", section.partition("    keypoints = ")[0], re.M)
    names = {"loader": loader}
    exec("\n".join(lines), names)
    (batch,) = names["train"]
    assert batch["image"].shape == (32, 224, 224, 3)
    # each box is the whole image
    boxes, categories = (batch[f"objects/{name}"].to_list() for name in ("bbox", "categories"))
    # crops that hold little of an image lose its box
    assert set(map(str, boxes)) <= {"[]", "[[0.0, 0.0, 224.0, 224.0]]"}
    assert [len(each) for each in boxes] == [len(each) for each in categories]
    assert sum(map(len, boxes)) > 16
