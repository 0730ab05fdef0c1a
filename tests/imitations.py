"""Small imitations of the layouts of public datasets, and the values that a dataset of each has to hold.

Each function writes a layout below the working directory with the names and formats of the original. It
returns what a user gives to ``build images``, or None, and by dataset and split the examples: by key a dict
of features, in which labels are names of classes, and images the bytes of their files.
"""

import gzip
import io
import json
import struct
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image
from scipy.io import savemat

from tests.prep.exported import frame, record
from tfshards.schemas import Feature, Schema

SYNSETS = ("n01440764", "n01443537", "n02084071")


def random(seed, *shape, high=256):
    return np.random.default_rng(seed).integers(0, high, shape, np.uint8)


def picture(path, seed, size=(20, 16), mode="RGB"):
    """Write a picture of random pixels, or of few classes if it is a mask, and return the bytes."""
    width, height = size
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    image = Image.fromarray(random(seed, *shape, high=256 if mode == "RGB" else 5))
    if mode == "P":
        image = image.convert("P")
        image.putpalette(random(1, 768).tolist())
    kind = "PNG" if Path(path).suffix == ".png" else "JPEG"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    image.save(path, kind)
    return Path(path).read_bytes()


def text(path, *lines):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(f"{line}\n" for line in lines))


def labeled(root, rows):
    """Write the pictures of rows of a split, a path and a label, and return the examples."""
    found = {}
    for number, (split, key, label) in enumerate(rows):
        found.setdefault(split, {})[key] = {"image": picture(f"{root}/{key}", number), "label": label}
    return found


def imagenet():
    labels = [SYNSETS[number] for number in (2, 0, 1, 2)]
    rows = [("train", f"train/{name}/{name}_{n}.JPEG", name) for n, name in enumerate(SYNSETS * 2)]
    rows += [("val", f"val/ILSVRC2012_val_{n:08}.JPEG", label) for n, label in enumerate(labels, 1)]
    found = labeled("imagenet", rows)
    text("imagenet/imagenet_2012_validation_synset_labels.txt", *labels)
    # ids of the devkit are in another order
    ids = [SYNSETS[2], SYNSETS[0], SYNSETS[1]]
    devkit = "imagenet/ILSVRC2012_devkit_t12/data"
    text(f"{devkit}/ILSVRC2012_validation_ground_truth.txt", *(ids.index(label) + 1 for label in labels))
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O")]
    savemat(f"{devkit}/meta.mat", {"synsets": np.array([*enumerate(ids, 1)], kind)[:, None]})
    rows = [f"ILSVRC2012_val_{n:08},{label} 1 2 30 40 " for n, label in enumerate(labels, 1)]
    text("imagenet/LOC_val_solution.csv", "ImageId,PredictionString", *rows[::-1])
    return "imagenet", {"data/imagenet": found}


def tiny_imagenet():
    root, labels = "tiny-imagenet-200", (SYNSETS[1], SYNSETS[0], SYNSETS[1])
    rows = [("train", f"train/{name}/images/{name}_{n}.JPEG", name) for n, name in enumerate(SYNSETS * 2)]
    for _, key, name in rows:
        text(f"{root}/train/{name}/{name}_boxes.txt", f"{Path(key).name}\t0\t10\t63\t58")
    rows += [("val", f"val/images/val_{number}.JPEG", name) for number, name in enumerate(labels)]
    lines = [f"val_{number}.JPEG\t{name}\t0\t32\t44\t62" for number, name in enumerate(labels)]
    found = labeled(root, rows)
    text(f"{root}/val/val_annotations.txt", *lines)
    text(f"{root}/wnids.txt", *SYNSETS)
    text(f"{root}/words.txt", *(f"{name}\tsomething" for name in SYNSETS))
    picture(f"{root}/test/images/test_0.JPEG", 20)
    return root, {"data/tiny": found}


def cub():
    root, names = "CUB_200_2011", ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
    found, tables = {"0": {}, "1": {}}, {name: [] for name in ("images", "labels", "split", "boxes")}
    for number in range(1, 7):
        name, is_training = names[number % 2], number % 3 != 0
        key, box = f"{name}/{name[4:]}_{number:04}.jpg", [1.0, 2.0, 10.0 + number, 9.0]
        tables["images"].append(f"{number} {key}")
        tables["labels"].append(f"{number} {number % 2 + 1}")
        tables["split"].append(f"{number} {is_training:d}")
        tables["boxes"].append(" ".join(map(str, [number, *box])))
        values = {"image_id": number, "label": name, "bbox": box}
        found[f"{is_training:d}"][key] = values | {"path": picture(f"{root}/images/{key}", number)}
    text(f"{root}/images.txt", *tables["images"])
    text(f"{root}/image_class_labels.txt", *tables["labels"])
    text(f"{root}/train_test_split.txt", *tables["split"])
    text(f"{root}/bounding_boxes.txt", *tables["boxes"])
    text(f"{root}/classes.txt", *(f"{number} {name}" for number, name in enumerate(names, 1)))
    text(f"{root}/parts/parts.txt", "1 back")
    return root, {"data/cub": found}


def celeba():
    names = [f"Attribute_{number}" for number in range(40)]
    rows, parts, found = [], [], {"0": {}, "1": {}, "2": {}}
    for number in range(1, 8):
        key, split = f"{number:06}.jpg", str(number % 3)
        values = np.where(random(number, 40, high=2), 1, -1).tolist()
        rows.append(key + "".join(f"{value:3}" for value in values))
        parts.append(f"{key} {split}")
        found[split][key] = {"index": picture(f"celeba/img_align_celeba/{key}", number)}
        found[split][key] |= dict(zip(names, values, strict=True))
    text("celeba/list_attr_celeba.txt", len(rows), " ".join(names) + " ", *rows)
    text("celeba/list_eval_partition.txt", *parts)
    return "celeba", {"data/celeba": found}


def pets():
    found = {"train": {}, "test": {}}
    lines = {"train": [], "test": []}
    for number, (name, label, species) in enumerate(
        [("Abyssinian", 1, 1), ("american_bulldog", 2, 2), ("Abyssinian", 1, 1), ("american_bulldog", 2, 2)]
    ):
        split, stem = ("train", "test")[number // 2], f"{name}_{number + 1}"
        lines[split].append(f"{stem} {label} {species} 1")
        found[split][f"images/{stem}.jpg"] = {
            "image": picture(f"pets/images/{stem}.jpg", number),
            "mask": picture(f"pets/annotations/trimaps/{stem}.png", number, mode="L"),
            "name": stem.encode(),
            "label": label,
            "species": species,
            "breed": 1,
        }
    text("pets/annotations/trainval.txt", *lines["train"])
    text("pets/annotations/test.txt", *lines["test"])
    text("pets/annotations/list.txt", "#Image CLASS-ID SPECIES BREED ID", *lines["train"], *lines["test"])
    return "pets", {"data/pets": found}


def food():
    rows = [
        (("train", "test")[n // 4], f"{label}/{1005649 + n}.jpg", label)
        for n, label in enumerate(("apple_pie", "baby_back_ribs") * 4)
    ]
    for split in ("train", "test"):
        text(f"food-101/meta/{split}.txt", *(key[:-4] for its, key, _ in rows if its == split))
    text("food-101/meta/classes.txt", "apple_pie", "baby_back_ribs")
    return "food-101", {"data/food": labeled("food-101/images", rows)}


def flowers():
    labels, sets = [3, 1, 2, 3, 1, 2, 2], {"trnid": [5, 1, 2], "valid": [4], "tstid": [3, 7, 6]}
    found = {}
    images = [picture(f"flowers-102/jpg/image_{n:05}.jpg", n) for n in range(1, 8)]
    for split, name in (("train", "trnid"), ("val", "valid"), ("test", "tstid")):
        found[split] = {
            f"image_{n:05}.jpg": {"image": images[n - 1], "label": labels[n - 1] - 1} for n in sets[name]
        }
    savemat("flowers-102/imagelabels.mat", {"labels": np.array([labels], np.uint8)})
    savemat("flowers-102/setid.mat", {name: np.array([ids], np.uint16) for name, ids in sets.items()})
    return "flowers-102", {"data/flowers": found}


def inaturalist():
    found, older = {"train": {}, "val": {}}, {"train": {}, "val": {}}
    for split, examples in older.items():
        rows, labels = [], []
        for number in range(4):
            name = f"{number % 2:05}_Animalia_Annelida_{number % 2}"
            key = f"{split}/{name}/{split}{number}.jpg"
            found[split][key] = {"image": picture(f"inat/{key}", number + len(split)), "label": name}
            key = f"train_val2018/{('Aves', 'Fungi')[number // 2]}/{number * 7}/{split}{number}.jpg"
            label = number * 7
            examples[key] = {"image": picture(f"inat2018/{key}", 9 + number), "label": label}
            rows.append({"id": 100 - number, "file_name": key, "width": 20, "height": 16})
            labels.append({"id": number, "image_id": 100 - number, "category_id": label})
        annotations = {"images": rows, "annotations": labels[::-1], "categories": []}
        text(f"inat2018/{split}2018.json", json.dumps(annotations))
    return "inat2018", {"data/inat": found, "data/inat2018": older}


def market():
    root = "Market-1501-v15.09.15"
    people = [("train", "0002"), ("train", "0007"), ("test", "-1"), ("test", "0003"), ("query", "0003")]
    rows = [
        (split, f"{'bounding_box_' * (split != 'query')}{split}/{label}_c{n}s1_000451_03.jpg", label)
        for split, label in people
        for n in range(2)
    ]
    found = labeled(root, rows)
    Path(root, "readme.txt").touch()
    return root, {"data/market": found}


def nested():
    labels = ("a/abbey", "a/apartment/outdoor", "b/bakery", "a/abbey")
    rows = [("train", f"{label}/sun_{number}.jpg", label) for number, label in enumerate(labels)]
    found = labeled("SUN397", rows)
    text("SUN397/ClassName.txt", "/a/abbey")
    return "SUN397", {"data/sun397": found}


def aircraft():
    root, variants = "fgvc-aircraft-2013b", ("707-320", "DC-9-30", "Model B200", "707-320")
    splits = ("train", "train", "val", "test")
    keys = [f"images/{number + 34309:07}.jpg" for number in range(4)]
    found = labeled(f"{root}/data", zip(splits, keys, variants, strict=True))
    for split, examples in found.items():
        lines = [f"{Path(key).stem} {values['label']}" for key, values in examples.items()]
        text(f"{root}/data/images_variant_{split}.txt", *lines)
        text(f"{root}/data/images_family_{split}.txt", *lines)
    return root, {"data/aircraft": found}


def kaggle():
    lines, found = ["id,label"], {}
    for number, label in enumerate(("cat", "dog", "cat", "frog")):
        stem = f"{number:04x}fa"
        lines.append(f"{stem},{label}")
        image = picture(f"competition/train/{stem}.png", number)
        found[f"train/{stem}.png"] = {"image": image, "id": stem.encode(), "label": label}
        picture(f"competition/test/{stem}.png", 10 + number)
    text("competition/train.csv", *lines)
    text("competition/sample_submission.csv", "id,label", "0000fa,cat")
    return "competition", {"data/train": {"train": found}}


def voc():
    root = "VOCdevkit/VOC2012"
    found, masks = {"train": {}, "val": {}}, {"train": {}, "val": {}}
    for number in range(6):
        split, name = ("train", "val")[number % 2], f"2007_{number:06}"
        image = picture(f"{root}/JPEGImages/{name}.jpg", number)
        boxes = [[1, 2, 10 + number, 9], [5, 4, 20, 16]][: 1 + number % 2]
        labels = ["person", "tvmonitor"][: len(boxes)]
        xml = f"<annotation><filename>{name}.jpg</filename><size><width>20</width></size>"
        for label, (x1, y1, x2, y2) in zip(labels, boxes, strict=True):
            xml += (
                f"<object><name>{label}</name><pose>Left</pose><difficult>{number % 2}</difficult><bndbox>"
                f"<xmax>{x2}</xmax><xmin>{x1}</xmin><ymax>{y2}</ymax><ymin>{y1}</ymin></bndbox>"
                "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax>"
                "</bndbox></part></object>"
            )
        text(f"{root}/Annotations/{name}.xml", xml + "</annotation>")
        found[split][f"JPEGImages/{name}.jpg"] = {
            "image": image,
            "objects/bbox": [[x1 - 1, y1 - 1, x2, y2] for x1, y1, x2, y2 in boxes],
            "objects/label": labels,
            "objects/difficult": [number % 2] * len(boxes),
        }
        if number > 1:
            mask = picture(f"{root}/SegmentationClass/{name}.png", number, mode="P")
            masks[split][f"JPEGImages/{name}.jpg"] = {"image": image, "mask": mask}
            picture(f"{root}/SegmentationObject/{name}.png", number, mode="P")
    for kind, splits in (("Main", found), ("Segmentation", masks)):
        for split, examples in splits.items():
            text(f"{root}/ImageSets/{kind}/{split}.txt", *(Path(key).stem for key in examples))
    return "VOCdevkit", {"data/voc-masks": masks, "data/voc": found}


def coco():
    found, texts, people = {}, {}, {}
    categories = [{"id": 3, "name": "car"}, {"id": 90, "name": "toothbrush"}]
    for split in ("train", "val"):
        found[split], texts[split], people[split] = {}, {}, {}
        images, boxes, captions, persons = [], [], [], []
        for number in range(3):
            name, image_id = f"{number:012}.jpg", 500 - number
            image = picture(f"coco/{split}2017/{name}", number + len(split))
            images.append({"id": image_id, "file_name": name, "width": 20, "height": 16})
            own = [[1.5, 2.0, 10.0, 8.25], [0.0, 0.0, 20.0, 16.0]][: number % 3]
            for index, box in enumerate(own):
                area, crowd = box[2] * box[3], index
                row = {"id": number, "image_id": image_id, "category_id": (90, 3)[index], "bbox": box}
                boxes.append(row | {"area": area, "iscrowd": crowd, "segmentation": [[1, 2, 3, 4, 5, 6]]})
                person = {
                    "category_id": 1,
                    "iscrowd": 0,
                    "num_keypoints": 2,
                    "keypoints": [3, 4, 2, 5, 6, 1, 0, 0, 0],
                }
                persons.append(boxes[-1] | person)
            captions += [
                {"id": n, "image_id": image_id, "caption": f"{split} {number}, {n}"} for n in range(2)
            ]
            key = f"{split}2017/{name}"
            found[split][key] = {
                "image": image,
                "image_id": image_id,
                "objects/bbox": own,
                "objects/category": ["toothbrush", "car"][: len(own)],
                "objects/area": [box[2] * box[3] for box in own],
                "objects/iscrowd": [0, 1][: len(own)],
            }
            people[split][key] = found[split][key] | {
                "objects/category": ["person"] * len(own),
                "objects/iscrowd": [0] * len(own),
                "objects/keypoints": [[3, 4, 2, 5, 6, 1, 0, 0, 0]] * len(own),
            }
            texts[split][key] = {
                "image": image,
                "captions": [f"{split} {number}, {n}".encode() for n in range(2)],
            }
        annotations = {"images": images, "annotations": boxes, "categories": categories}
        text(f"coco/annotations/instances_{split}2017.json", json.dumps(annotations))
        parts = ["nose", "left_eye", "right_eye"]
        person = {"id": 1, "name": "person", "keypoints": parts, "skeleton": [[1, 2]]}
        annotations = {"images": images, "annotations": persons, "categories": [person]}
        text(f"coco/annotations/person_keypoints_{split}2017.json", json.dumps(annotations))
        text(
            f"coco/annotations/captions_{split}2017.json",
            json.dumps({"images": images, "annotations": captions[::-1]}),
        )
        for examples in texts[split].values():
            examples["captions"].reverse()
    return "coco", {"data/coco": found, "data/people": people, "data/captions": texts}


def open_images():
    header = (
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,"
        "IsDepiction,IsInside"
    )
    names = {"/m/01g317": "Person", "/m/0k4j": "Car"}
    found = {}
    for split, table in (("train", "oidv6-train"), ("validation", "validation")):
        rows, found[split] = [], {}
        for number in range(3):
            image_id = f"{number:012x}{len(split):04x}"
            key = f"{split}/{image_id}.jpg"
            boxes = [[0.125, 0.25, 0.5, 0.75], [0.0, 0.5, 1.0, 0.875]][: 1 + number % 2]
            labels = [*names][: len(boxes)]
            for label, (x1, y1, x2, y2) in zip(labels, boxes, strict=True):
                rows.append(f"{image_id},xclick,{label},1,{x1},{x2},{y1},{y2},0,1,0,0,0")
            found[split][key] = {
                "image": picture(f"openimages/{key}", number + len(split)),
                "ImageID": image_id.encode(),
                "bbox": boxes,
                "label": [names[label] for label in labels],
                "LabelName": [label.encode() for label in labels],
                "Source": [b"xclick"] * len(boxes),
                "Confidence": [1] * len(boxes),
                "IsTruncated": [1] * len(boxes),
                **{f"Is{name}": [0] * len(boxes) for name in ("Occluded", "GroupOf", "Depiction", "Inside")},
            }
        text(f"openimages/{table}-annotations-bbox.csv", header, *rows)
    text("openimages/class-descriptions-boxable.csv", *(f"{mid},{name}" for mid, name in names.items()))
    return "openimages", {"data/open": found}


def yolo():
    found = {}
    for split in ("train", "val"):
        found[split] = {}
        for number in range(3):
            boxes = [[0.5, 0.5, 0.25, 0.5], [0.25, 0.75, 0.5, 0.5]][: 1 + number % 2]
            key = f"images/{split}/{number:012}.jpg"
            lines = [f"{number % 2} " + " ".join(map(str, box)) for box in boxes]
            text(f"coco8/labels/{split}/{number:012}.txt", *lines)
            found[split][key] = {
                "image": picture(f"coco8/{key}", number + len(split)),
                "objects/bbox": boxes,
                "objects/category": [("person", "bicycle")[number % 2]] * len(boxes),
            }
    text(
        "coco8/data.yaml", "path: coco8", "train: images/train", "val: images/val", "names:", "  0: person",
        "  1: bicycle",
    )  # fmt: skip
    return "coco8", {"data/coco8": found}


def json_lines():
    rows, found = [], {}
    for number in range(4):
        path = Path(f"photos/{number}.jpg")
        path.parent.mkdir(exist_ok=True)
        exif = Image.Exif()
        image = Image.fromarray(random(number, 16, 20, 3))
        # the sensor saw it on its side
        exif[0x0112] = 6 if number % 2 else 1
        image.save(path, exif=exif)
        boxes = [[1.0, 2.0, 10.0, 8.0], [0.0, 0.0, 16.0, 16.0]][: number % 3]
        objects = {"bbox": boxes, "category": ["cat", "dog"][: len(boxes)]}
        rows.append(json.dumps({"file_name": path.name, "objects": objects}))
        kept = path.read_bytes() if number % 2 == 0 else np.rot90(np.asarray(Image.open(path)), -1)
        found[path.name] = {"image": kept, "objects/bbox": boxes, "objects/category": objects["category"]}
    text("photos/boxes.jsonl", *rows)
    return None, {"data/boxes": {"train": found}}


def cityscapes():
    found = {}
    for split, city in (("train", "aachen"), ("val", "lindau")):
        found[split] = {}
        for number in range(3):
            stem = f"{split}/{city}/{city}_{number:06}_000019"
            key = f"leftImg8bit/{stem}_leftImg8bit.png"
            mask = picture(f"cityscapes/gtFine/{stem}_gtFine_labelIds.png", number, mode="L")
            picture(f"cityscapes/gtFine/{stem}_gtFine_color.png", number)
            text(f"cityscapes/gtFine/{stem}_gtFine_polygons.json", "{}")
            found[split][key] = {"image": picture(f"cityscapes/{key}", 9 + number), "mask": mask}
    return "cityscapes", {"data/cityscapes": found}


def pairs():
    found = {}
    for number in range(4):
        found[f"input/{number}.png"] = {
            "input": picture(f"pairs/input/{number}.png", number),
            "target": picture(f"pairs/target/{number}.png", 10 + number),
        }
    return "pairs", {"data/pairs": {"train": found}}


def masks():
    found = {}
    for number in range(4):
        image = picture(f"photos/images/{number}.jpg", number)
        found[f"images/{number}.jpg"] = {
            "image": image,
            "mask": picture(f"photos/labels/{number}.png", number, mode="P"),
        }
    return "photos", {"data/masks": {"train": found}}


def by_row(images, labels, first=0):
    """Return examples of arrays, whose keys are numbers."""
    rows = zip(images, labels, strict=True)
    return {str(first + row): {"image": image, "label": label} for row, (image, label) in enumerate(rows)}


def mnist():
    found, first = {}, 0
    Path("mnist").mkdir()
    for split, name, count in (("train", "train", 5), ("test", "t10k", 3)):
        images, labels = random(count, count, 28, 28), random(count, count, high=10)
        for kind, magic, values in (("images-idx3", 2051, images), ("labels-idx1", 2049, labels)):
            header = struct.pack(f">{1 + values.ndim}i", magic, *values.shape)
            with gzip.open(f"mnist/{name}-{kind}-ubyte.gz", "wb") as file:
                file.write(header + values.tobytes())
        found[split] = by_row(images, labels.tolist(), first)
        first += count
    return "mnist", {"data/mnist": found}


def cifar():
    names = ["airplane", "automobile", "bird"]
    folder = Path("cifar-10-batches-bin")
    folder.mkdir()
    parts = {}
    for number, name in enumerate(("data_batch_1", "data_batch_2", "test_batch")):
        planes, labels = random(number, 3, 3, 32, 32), random(number, 3, high=3)
        rows = np.concatenate([labels[:, None], planes.reshape(3, -1)], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
        pixels = np.stack([np.stack([*image], axis=-1) for image in planes])
        parts[name] = (pixels, [names[label] for label in labels])
    text(folder / "batches.meta.txt", *names, "")
    train = [np.concatenate([parts[f"data_batch_{n}"][0] for n in (1, 2)])]
    train.append(parts["data_batch_1"][1] + parts["data_batch_2"][1])
    found = {"train": by_row(*train), "test": by_row(*parts["test_batch"], 6)}
    return str(folder), {"data/cifar10": found}


def svhn():
    found, first = {}, 0
    Path("svhn").mkdir()
    for split, labels in (("train", [1, 10, 3, 9]), ("test", [10, 2])):
        images = random(len(split), len(labels), 32, 32, 3)
        content = {"X": np.moveaxis(images, 0, -1), "y": np.array(labels, np.uint8)[:, None]}
        savemat(f"svhn/{split}_32x32.mat", content)
        found[split] = by_row(images, [label % 10 for label in labels], first)
        first += len(labels)
    return "svhn", {"data/svhn": found}


def webdataset():
    found = {}
    Path("shards").mkdir()
    for shard in range(2):
        with tarfile.open(f"shards/{shard:06}.tar", "w") as archive:
            for number in range(3):
                stem, label = f"{shard}{number:05}", (shard + number) % 3
                image = picture(f"kept/{stem}.jpg", shard * 3 + number)
                for name, data in ((f"{stem}.jpg", image), (f"{stem}.cls", b"%d" % label)):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
                found[f"{stem}.jpg"] = {"image": image, "label": label}
    return "shards", {"data/shards": {"train": found}}


def hugging_face():
    rows, found = [], {}
    for number in range(4):
        image = picture(f"photos/{number}.png", number)
        rows.append(f"{number}.png,a picture of {number},{number / 4}")
        caption = f"a picture of {number}".encode()
        found[f"{number}.png"] = {"image": image, "text": caption, "score": number / 4}
    text("photos/metadata.csv", "file_name,text,score", *rows)
    return "photos", {"data/photos": {"train": found}}


def scenes():
    found = {}
    for split, count in (("train", 4), ("validation", 2)):
        columns, found[split] = {"image": [], "annotation": [], "scene_category": []}, {}
        for number in range(count):
            name = f"ADE_{split}_{number:08}"
            image = picture(f"kept/{name}.jpg", number)
            mask = picture(f"kept/{name}.png", number, mode="L")
            columns["image"].append({"bytes": image, "path": f"{name}.jpg"})
            columns["annotation"].append({"bytes": mask, "path": f"{name}.png"})
            columns["scene_category"].append(number)
            found[split][f"{name}.jpg"] = {"image": image, "annotation": mask, "scene_category": number}
        Path("scenes/data").mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pa.table(columns), f"scenes/data/{split}-00000-of-00001.parquet")
    return "scenes/data", {"data/scenes": found}


def mvtec():
    found = {"train": {}, "test": {}}
    for kind in ("bottle", "grid"):
        for number, (split, defect) in enumerate(
            [("train", "good"), ("train", "good"), ("test", "good"), ("test", "broken_large")]
        ):
            key = f"{kind}/{split}/{defect}/{number:03}.png"
            mask = np.zeros((16, 20), np.uint8)
            if defect != "good":
                mask = picture(f"mvtec/{kind}/ground_truth/{defect}/{number:03}_mask.png", number, mode="L")
            image = picture(f"mvtec/{key}", number + len(kind))
            found[split][key] = {
                "image": image, "mask": mask, "object": kind.encode(), "defect": defect
            }  # fmt: skip
    return "mvtec", {"data/mvtec": found}


def rlds():
    root, core = Path("episodes/1.0.0"), "tensorflow_datasets.core.features."
    root.mkdir(parents=True)

    def tensor(kind, dtype, *shape, **more):
        dims = {"dimensions": [str(dim) for dim in shape]} if shape else {}
        return {"pythonClassName": core + kind, ("tensor", "image")["encodingFormat" in more]: {
            "shape": dims, "dtype": dtype, **more,
        }}  # fmt: skip

    def folder(**inner):
        return {"pythonClassName": f"{core}features_dict.FeaturesDict", "featuresDict": {"features": inner}}

    steps = folder(
        observation=folder(state=tensor("tensor_feature.Tensor", "float32", 3)),
        action=tensor("tensor_feature.Tensor", "float32", 2),
        reward=tensor("scalar.Scalar", "float32"),
        is_first=tensor("scalar.Scalar", "bool"),
        is_last=tensor("scalar.Scalar", "bool"),
    )
    dataset = {
        "pythonClassName": f"{core}dataset_feature.Dataset",
        "sequence": {"feature": steps, "length": "-1"},
    }
    (root / "features.json").write_text(json.dumps(folder(steps=dataset)))
    names = ("observation/state", "action", "reward", "is_first", "is_last")
    kinds = [("float", "float32")] * 3 + [("int", "int64")] * 2
    features = (Feature(f"steps/{name}", *kind, (None,)) for name, kind in zip(names, kinds, strict=True))
    schema, records, found = Schema(tuple(features)), [], {}
    for number in range(3):
        length = 2 + number
        numbers = np.random.default_rng(number).random((length, 6)).astype("<f4")
        state, action, reward = numbers[:, :3], numbers[:, 3:5], numbers[:, 5]
        values = {
            "steps/observation/state": state.ravel().tolist(),
            "steps/action": action.ravel().tolist(),
            "steps/reward": reward.tolist(),
            "steps/is_first": [1] + [0] * (length - 1),
            "steps/is_last": [0] * (length - 1) + [1],
        }
        records.append(frame(record(schema, values)))
        found[str(number)] = values | {"steps/observation/state": state, "steps/action": action}
    (root / "episodes-train.tfrecord-00000-of-00001").write_bytes(b"".join(records))
    split = {"name": "train", "shardLengths": ["3"], "numBytes": "1", "filepathTemplate": "{DATASET}-{SPLIT}"}
    info = {"name": "episodes", "version": "1.0.0", "splits": [split], "fileFormat": "tfrecord"}
    (root / "dataset_info.json").write_text(json.dumps(info))
    return "episodes", {"episodes/1.0.0": {"train": found}}


def years():
    rows = []
    for number in range(6):
        split, label = ("train", "val")[number % 2], ("cat", "dog")[number // 3]
        rows.append((split, f"{split}2017/{label}/{number}.jpg", label))
    found = labeled("animals", rows)
    return "animals", {"data/animals": found}
