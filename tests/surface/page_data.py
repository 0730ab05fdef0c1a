"""What the sections of the documentation find in their folder, by the name in their comment ``run``.

A function returns names for the Python of the section, or yields them. Then it continues after the last block
with the runner, to check the result. Its keyword-only parameters are fixtures of pytest.
"""

import itertools
import json
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests import imitations
from tests.imitations import text
from tests.pages import ROOT, commands
from tests.surface.command import main
from tfshards import loader, prep
from tfshards.schemas import read_manifest
from tfshards.schemas.storage import any_path

DEEP = np.random.default_rng(0).integers(0, 4096, (20, 16), dtype=np.uint16)
CLASSES = (DEEP % 3).astype(np.uint8)


def files(*words):
    """Write photos, or what follows the first "=" of a word: an empty mask, arrays, rows, or text."""
    for number, word in enumerate(words):
        name, _, content = word.partition("=")
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not content:
            picture(path, np.random.default_rng(number).integers(0, 256, (8, 12, 3), np.uint8))
        elif path.suffix == ".png":
            picture(path, np.zeros((8, 12), np.uint8))
        elif path.suffix == ".npy":
            np.save(path, json.loads(content))
        elif path.suffix == ".npz":
            np.savez(path, **json.loads(content))
        elif path.suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(json.loads(content)), path)
        else:
            path.write_text(content.replace(r"\n", "\n"))


def picture(path, pixels):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def run(line):
    for words in commands(line):
        assert main([*words, "--quiet"]) == 0, line


def classes(folder="photos", count=20, start=0, suffix=".png"):
    files(*(f"{folder}/{('cat', 'dog')[n % 2]}/{n:03}{suffix}" for n in range(start, start + int(count))))


def dataset(count=20, folder="photos"):
    classes(folder, count)
    run(f"build images {folder} data/{folder} --splits train=0.9 --splits val=0.1")


# images


def patients():
    # two are not in a folder of their patient
    folders = [f"{('cat', 'dog')[n // 2 % 2]}{f'/p{n // 2}' if n > 1 else ''}" for n in range(40)]
    names = [f"photos/{folder}/patient{n // 2}_{n}.png" for n, folder in enumerate(folders)]
    files(*names)
    text("scans.csv", "file_name,patient", *(f"{name},{number // 2}" for number, name in enumerate(names)))


def masks():
    photo = np.stack([CLASSES * 100] * 3, 2)
    for number in range(8):
        picture(f"segmentation/train/images/{number}.png", photo)
        picture(f"segmentation/train/masks/{number}.png", CLASSES)
    picture("left/images/a_left.png", photo)
    picture("left/gt/a_gt.png", CLASSES)
    page = yield
    for image, mask in page.names["train"].as_numpy_iterator():
        assert (image.dtype, mask.dtype) == (np.float32, np.uint8)
        assert {*np.unique(mask)} <= {0, 1, 2}


def deep_images():
    import tensorflow as tf

    for number in range(32):
        picture(f"scans/{number}.png", DEEP)
    picture("rooms/images/a.png", np.stack([CLASSES * 100] * 3, 2))
    picture("rooms/masks/a.png", DEEP)
    np.save("ELEVATION.npy", np.float32(DEEP))
    tiles = [np.roll(DEEP, n, axis=1)[..., None] * np.uint16([1, 3, 16]) for n in range(4)]
    for number, tile in enumerate(tiles):
        path = Path("tiles", ("forest", "urban")[number % 2], f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(tile).numpy())
    page = yield
    (batch,) = page.names["scans"]
    assert np.array_equal(batch["image"][0], tf.image.resize(DEEP[..., None], (512, 512)))
    # by class
    wanted = {"elevation": np.float32(DEEP), "tiles": [*tiles[::2], *tiles[1::2]]}
    for name, images in wanted.items():
        for row in loader.Records(f"data/{name}"):
            assert np.array_equal(row["image"], images[int(row["key"])])


# arrays


def image_arrays():
    pixels = np.random.default_rng(0).integers(0, 256, (256, 28, 28), np.uint8)
    np.savez("mnist.npz", x_train=pixels, y_train=np.arange(256) % 10, x_test=pixels[:9], y_test=np.arange(9))
    page = yield
    assert page.names["train"].element_spec[0].shape == (256, 32, 32, 3)


def chunks():
    for number in range(12):
        np.save(f"image-{number}.npy", np.full((2, 8, 8), number, np.uint8))
        np.save(f"label-{number}.npy", np.array([number, number]))
    stored = [(1, 0.5), (0, 2.0)]
    np.save("rows.npy", np.array(stored, [("label", "u1"), ("weight", "f4")]))
    yield
    for row in loader.Records("data/parts"):
        assert row["label"] == int(row["key"]) // 2
        assert (row["image"] == row["label"]).all()
    assert sorted((row["label"], row["weight"]) for row in loader.Records("data/rows")) == sorted(stored)


def iterables():
    files(*(f"scans/{'ab'[number % 2]}-{number}.png" for number in range(9)))
    pixels = np.zeros((9, 8), np.uint8)
    yield {
        "frame": pd.DataFrame({"path": [*map(str, Path("scans").iterdir())]}),
        "pairs": [(Image.fromarray(pixels), 1)] * 3,
        "rows": [{"pixels": np.stack([pixels] * 3, 2), "seg": pixels, "fold": "a"}],
        "train_rows": [{"x": 1}],
        "val_rows": [{"x": 2}],
    }
    assert read_manifest("data/scans").schema.class_names == ("a", "b")
    folds = read_manifest("data/folds").schema
    assert [folds[name].kind for name in ("pixels", "seg")] == ["image", "mask"]


# tables


def missing_values():
    lines = ["cat,1,Ulm,2", ",,,2", *["dog,3,Bonn,4"] * 198, "cat,1,,"]
    text("rows.csv", "label,age,city,height", *lines)


def hugging_face():
    files(*(f"photos/{number}.png" for number in range(32)))
    objects = {"bbox": [[0, 0, 12, 8]], "categories": [1]}
    text(
        "photos/metadata.jsonl",
        *(json.dumps({"file_name": f"{n}.png", "objects": objects}) for n in range(32)),
    )
    names = {"names": ["oak", "elm"], "_type": "ClassLabel"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"fine_label": names}}})}
    Path("repository/data").mkdir(parents=True)
    for name, count in (("train-00000-of-00002", 3), ("train-00001-of-00002", 2), ("test-00000-of-00001", 1)):
        images = [{"bytes": Path("photos/0.png").read_bytes(), "path": None}] * count
        table = pa.table({"image": images, "fine_label": [1] * count, "coarse_label": [0] * count})
        pq.write_table(table.replace_schema_metadata(metadata), f"repository/data/{name}.parquet")


def coco_and_yolo():
    imitations.coco()
    imitations.yolo()
    shutil.copy("coco/annotations/instances_train2017.json", ".")
    shutil.copytree("coco/train2017", "train2017")
    Path("photos").mkdir()
    for number in range(10):
        for kind, suffix in (("images", ".jpg"), ("labels", ".txt")):
            shutil.copy(f"coco8/{kind}/train/000000000000{suffix}", f"photos/{number}{suffix}")


def other_formats():
    import datasets
    import h5py

    kinds = datasets.Features({"number": datasets.Value("int64"), "image": datasets.Image()})
    saved = {}
    for split in ("train", "test"):
        names = [f"{split}{number}.png" for number in range(3)]
        files(*names)
        saved[split] = datasets.Dataset.from_dict({"number": [3, 1, 2], "image": names}, kinds)
    datasets.DatasetDict(saved).save_to_disk("saved")
    with h5py.File("arrays.h5", "w") as file:
        file["x"], file["label"] = np.arange(6).reshape(3, 2), [1, 0, 1]
    Path("parquet").mkdir()
    yield
    found = [(row["number"], row["image"]) for row in loader.Records("data/saved", "test")]
    assert sorted(found) == sorted((n, Path(f"test{i}.png").read_bytes()) for i, n in enumerate((3, 1, 2)))
    for row in loader.Records("data/arrays"):
        assert row["x"].tolist() == [2 * int(row["key"]), 2 * int(row["key"]) + 1]


def captions():
    files(*(f"photos/{number}.png" for number in range(10)))
    lines = [f"{spelling}{number}.png,a {number}" for number in range(10) for spelling in ("", "./")]
    text("captions.csv", "file_name,caption", *lines)


# elsewhere


def bucket(kind="photos", *, running_servers, monkeypatch):
    import tensorflow as tf

    from tests.storage.conftest import lead_to
    from tests.storage.servers import create_bucket

    server = running_servers.get("moto")
    lead_to(server, monkeypatch)
    name = f"pets-{Path.cwd().name.replace('_', '-')}".lower()
    create_bucket(server, name)
    dataset(1200)
    for path in Path({"photos": "photos", "dataset": "data/photos"}[kind]).rglob("*"):
        if path.is_file():
            any_path(f"s3://{name}/{path}").write_bytes(path.read_bytes())
    Path("nvme").mkdir()
    here = {"s3://pets/": f"s3://{name}/", "disk:/nvme": f"disk:{Path('nvme').absolute()}"}
    page = yield {"tf": tf, "options": {}, "replaced": here}
    assert read_manifest(f"s3://{name}/data/photos").num_examples == 1200
    if "train" in page.names:
        assert next(iter(page.names["train"]))


def home(*, monkeypatch):
    monkeypatch.setenv("HOME", str(Path.cwd()))
    for folder in (".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions"):
        Path(folder).mkdir(parents=True)


def embeddings():
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    dataset(90)
    names = {"beam": beam, "PipelineOptions": PipelineOptions, "beam_args": ["--runner=FnApiRunner"]}
    return names | {"load_model": lambda: len}


def gray_pipeline():
    page = yield
    gray = read_manifest("data/gray")
    assert f"written: {gray.build_id}\n" in page.printed[0]
    assert sorted(shard.num_examples for shard in gray.shards) == [12] * 4 + [13] * 4
    assert gray.schema.class_names == ("bright", "dark")
    assert page.names["counts"] == {"accepted": 100, "rejected": 0}


def dark_and_bright():
    classes()
    picture("photos/cat/dark.png", np.zeros((8, 8, 3), np.uint8))
    run("build images photos data/photos --shards 2 --splits train=0.7 --splits val=0.3")


# maintenance


def generations():
    dataset()
    replaced = {"3f9a2c1b": read_manifest("data/photos").folder}
    classes(count=4, start=200)
    run("append photos data/photos")
    return {"replaced": replaced}


def damaged():
    dataset()
    shard = read_manifest("data/photos").shards[0]
    Path("data/photos", shard.files[1]).unlink()
    page = yield
    assert f"rebuilt: {shard.files[1]}" in page.printed[0].splitlines()
    assert prep.verify("data/photos")


def other_readers():
    dataset()
    page = yield {"replaced": {"3f9a2c1b": read_manifest("data/photos").folder}}
    assert len([*page.names["train"]]) == 18


def additions():
    dataset()
    files(r'list.jsonl={"file_name": "cat/000.png"}\n{"file_name": "dog/001.png"}')
    run("build table list.jsonl data/list --root photos")
    for name in ("IMAGES", "LABELS"):
        np.save(f"{name}.npy", np.arange(6))
    run("build arrays image=IMAGES.npy label=LABELS.npy data/arrays")
    classes(count=4, start=200)
    yield
    assert read_manifest("data/photos").num_examples == 24


def two_datasets():
    dataset()
    classes("more", count=8, start=500)
    run("build images more data/more --splits train=0.5 --splits val=0.5")


def datasets_of_splits():
    for split in ("train", "test"):
        files(*(f"{split}/{number % 2}/{split}-{number}.png" for number in range(3)))
        run(f"build images {split} data/{split}")


def edited(*keys):
    classes(count=8, suffix=".jpg")
    shutil.copy("photos/cat/000.jpg", "photos/cat/000-copy.jpg")
    shutil.copy("photos/dog/001.jpg", "photos/cat/001.jpg")
    shutil.copy("photos/dog/007.jpg", "photos/cat/007.jpg")
    if keys:
        text("keys.txt", *keys)
    run("build images photos data/photos")
    yield
    left = {row["key"].decode(): row["label"] for row in loader.Records("data/photos")}
    # the section that corrects labels removes nothing
    assert left["cat/001.jpg"] == left["cat/007.jpg"] == (len(left) == 11)
    assert prep.verify("data/photos", deep=True)


def two_equal_datasets():
    classes()
    run("build images photos data/before")
    shutil.copytree("data/before", "data/after")


def records():
    np.save("digit.npy", np.arange(6) % 2)
    np.save("debug.npy", np.arange(6))
    run("build arrays digit.npy debug.npy data/digits --shards 2")
    Path("DIR").mkdir()
    for number, path in enumerate(sorted(Path("data/digits").glob("*/*.tfrecord-*"))):
        path.rename(f"DIR/part-{number}0.tfrecord")
    Path("names.txt").write_text("even\nodd\n")
    classes()
    for path in Path("photos").rglob("*.png"):
        picture(f"both/masks/{path.relative_to('photos')}", np.zeros((8, 12), np.uint8))
    shutil.copytree("photos", "both/images")
    run("build images both built --splits train=0.9 --splits val=0.1")
    Path("built", read_manifest("built").folder).rename("elsewhere")
    yield
    kinds = {feature.name: feature.kind for feature in read_manifest("data/copied").schema.features}
    assert kinds == {"image": "image", "key": "bytes", "label": "label", "mask": "mask"}


def many_classes():
    names = ["cat", *(f"class{number:02}" for number in range(24))]
    files(*(f"photos/{name}/{number:04}.jpg" for name in names for number in range(4)))
    run("build images photos data/photos --splits train=0.9 --splits val=0.1")
    page = yield
    (printed,) = page.printed
    few, every = printed.split("\nand 5 more classes, none of them larger (--json has all)\n")
    assert "class23" not in few
    assert all(f'"{name}"' in every for name in names)
    assert "\nkey: cat/0001.jpg\n" in every
    assert "split train, example 5, record 5 of " in every
    assert re.findall(r"^split val, example (\d),", every, re.M) == ["0", "1", "2"]


def audited():
    dataset()
    classes("photos/again", 2)
    shutil.copytree("data/photos", "DATASET")
    yield
    assert prep.audit("DATASET").findings


def reference():
    classes(count=90)
    classes("more", count=8, start=500)
    run("build images more data/more --splits train=0.5 --splits val=0.5")
    picture("photos/cat/001.jpg", np.full((8, 12, 3), (250, 0, 0), np.uint8))
    shutil.copy("photos/cat/000.png", "photos/cat/again.png")
    np.save("digit.npy", np.arange(6) % 2)
    run("build arrays digit.npy data/digits")
    Path("elsewhere").mkdir()
    shutil.copy(next(Path("data/digits").glob("*/*.tfrecord-*")), "elsewhere/part-00.tfrecord")
    page = yield
    (printed,) = page.printed
    assert (bool(page.names["report"]), page.names["manifest"].num_examples) == (True, 92)
    assert "removed: 1 example\n" in printed
    assert "relabeled: 1 example\n    cat/001.jpg: cat -> dog\n" in printed
    assert all(prep.verify(path) for path in ("data/photos", "data/photos16", "data/all", "elsewhere"))
    assert Path("photos.html").exists()
    assert any(Path("exported/photos").rglob("*.parquet"))


def exported():
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    dataset()
    Path("exported").mkdir()
    yield
    stored = [*loader.Records("data/photos", "train")]
    files = sorted(Path("exported/folder/train").rglob("*.jpg"), key=lambda path: path.name)
    assert [path.read_bytes() for path in files] == [row["image"] for row in stored]
    assert {path.parent.name for path in files} == {"cat", "dog"}
    with ArrayRecordDataSource("exported/train.array_record") as source:
        assert [pickle.loads(each) for each in source.__getitems__(range(len(source)))] == stored


# training


def training():
    import keras
    import tensorflow as tf

    dataset(1200)
    dataset(300, "drawings")
    Path("local").mkdir()
    image = loader.Image(size=(8, 8))
    options = {"select": ("image", "label"), "image": image}
    flat = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((8, 8, 3)), *flat])
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", losses, weighted_metrics=["accuracy"])
    names = {"itertools": itertools, "tf": tf, "keras": keras, "path": "data/photos"}
    names |= {"model": model, "image": image, "options": options, "strategy": tf.distribute.get_strategy()}
    names |= {"labels": tf.constant([0, 1]), "logits": tf.zeros([2, 2]), "sample_weight": tf.ones(2)}
    names |= {"train": loader.load("data/photos", "train", batch_size=64, **options), "step": lambda *_: None}
    names["replaced"] = {"disk:/local": f"disk:{Path('local').absolute()}", "epochs=90": "epochs=2"}
    page = yield names
    assert next(iter(page.names["train"]))


def boxes():
    objects = {"bbox": [[0, 0, 12, 8]], "categories": [1], "category": [1], "keypoints": [[1, 2, 2] * 7]}
    for number in range(32):
        files(f"photos/{number}.png")
    lines = [json.dumps({"file_name": f"{number}.png", "objects": objects}) for number in range(32)]
    text("photos/boxes.jsonl", *lines)
    build, declared = "build table photos/boxes.jsonl data", "--roles objects/bbox=xywh --roles objects"
    run(f"{build}/photos {declared}/category=drop --roles objects/keypoints=drop")
    run(f"{build}/pose {declared}/categories=drop --roles objects/keypoints=xyv")
    page = yield
    (batch,) = page.names["train"]
    assert batch["image"].shape == (32, 224, 224, 3)
    # each box is the whole image, unless the crop shows little of it
    found = {str(each) for each in batch["objects/bbox"].to_list()}
    assert found <= {"[]", "[[0.0, 0.0, 224.0, 224.0]]"}
    assert batch["objects/keypoints"].shape[0] == 32


def lists():
    import tensorflow as tf

    images, tags = tf.zeros([2, 1, 1, 3]), tf.ragged.constant([[3, 0, 3], []], dtype=tf.int64)
    train = tf.data.Dataset.from_tensors((images, [9, 0]))
    page = yield {"tf": tf, "train": train, "tagged": tf.data.Dataset.from_tensors((images, tags))}
    ((_, labels),) = page.names["train"].as_numpy_iterator()
    assert labels.argmax(axis=1).tolist() == [9, 0]
    ((_, vectors),) = page.names["tagged"].as_numpy_iterator()
    assert vectors.shape == (2, 40)
    assert [np.flatnonzero(row).tolist() for row in vectors] == [[0, 3], []]


def ragged():
    import tensorflow as tf

    page = yield {"train": tf.data.Dataset.from_tensors({"tags": tf.ragged.constant([[3, 1], [2]])})}
    (batch,) = page.names["train"]
    assert batch["tags"].numpy().tolist() == [[3, 1], [2, 0]]


def receipts():
    classes(count=720, suffix=".jpg")
    run("build images photos data/photos --splits train=0.9 --splits val=0.1")
    shuffle = loader.Shuffle(seed=7)
    trained = loader.batches("data/photos", "train", batch_size=256, shuffle=shuffle, epochs=90)
    for _ in itertools.islice(trained, 3):
        pass
    here = {"cat/0001.jpg": "cat/000.jpg"}
    page = yield {"json": json, "progress": trained, "path": "data/photos", "replaced": here}
    seen = page.names["seen"]
    assert len(seen) == len({(each.epoch, each.number) for each in seen}) > 256
    # a step of which, and an example in most of 90 epochs of when
    (printed,) = [each for each in page.printed if each.startswith("epoch ")]
    assert len(printed.splitlines()) > 256 + 60


# whole pages


COLORS = {"cat": (200, 60, 60), "dog": (60, 200, 60), "owl": (60, 60, 200)}


def noisy_photos(colors):
    """120 photos of the classes, and one that is cut off."""
    for number in range(120):
        name = [*colors][number % len(colors)]
        noisy_photo(f"photos/{name}/{number:04}.jpg", number, colors[name])
    complete = Path("photos/cat/0000.jpg").read_bytes()
    Path("photos/dog/cut.jpg").write_bytes(complete[: len(complete) // 2])


def noisy_photo(path, number, color):
    size = ((72, 96), (96, 72), (64, 64), (120, 80))[number % 4]
    noise = np.random.default_rng(number).integers(-50, 51, (*size, 3))
    picture(path, (noise + color).astype(np.uint8))


def accuracies(page):
    """The accuracies of the validation after each epoch."""
    return [float(each) for each in re.findall(r" val_accuracy: ([\d.]+)", "".join(page.printed))]


def tutorial():
    noisy_photos(COLORS)
    for number in range(200, 206):
        noisy_photo(f"more/{number:04}.jpg", number, COLORS["owl"])
    page = yield
    assert accuracies(page)[-1] > 0.8
    *_, damaged, repaired = page.printed
    assert re.search(r"/photos-val\.tfrecord-00000-of-00001\.idx: ", damaged)
    assert "data/photos: sound" in repaired
    assert prep.verify("data/photos", deep=True)
    assert read_manifest("data/photos").num_examples == 126


def readme(*classes):
    """Photos of the classes of the README, or of some of them, whose lines are then the only ones."""
    lines = (ROOT / "README.md").read_text().splitlines()
    absent = {*COLORS} - {*(classes or COLORS)}
    replaced = {f"{line}\n": "" for line in lines if line.split()[:1] and line.split()[0] in absent}
    colors = {name: color for name, color in COLORS.items() if name not in absent}
    # with the input that the build rejects
    noisy_photos(colors)
    picture("new.jpg", np.full((64, 64, 3), colors["cat"], np.uint8))
    append = "tfshards append photos"
    page = yield {"replaced": replaced | {append: f"mv new.jpg photos/cat/ && {append}"}}
    assert len(accuracies(page)) == 10
    assert accuracies(page)[-1] > 0.8, accuracies(page)
    assert Path("report.html").exists()
    manifests = [read_manifest(f"data/{name}") for name in ("photos", "photos4", "beam")]
    assert [manifest.num_examples for manifest in manifests] == [121] * 3
    assert {manifest.schema.class_names for manifest in manifests} == {tuple(colors)}
    assert [len(split.shards) for split in manifests[1].splits.values()] == [4, 4]
