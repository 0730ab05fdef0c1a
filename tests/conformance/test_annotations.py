"""Boxes, keypoints and polygons move with their image; COCO and YOLO become such features."""

import numpy as np
import pytest
from PIL import Image

from tests.conformance.calls import coco, table, yolo
from tests.conformance.inputs import Link, picture, pixels
from tests.conformance.rows import refused, row, stored
from tests.conformance.runner import check
from tfshards.schemas import BuildError, InputError, OptionsError

# 16 x 8 pixels that are all different, and the edges of two boxes in the file
WIDE, HIGH = 16, 8
PHOTO = np.arange(WIDE * HIGH * 3, dtype=np.uint16).reshape(HIGH, WIDE, 3).astype(np.uint8)
BOXES = [(1, 2, 5, 6), (8, 0, 16, 4)]
F32 = np.float32


def turned(values, orientation):
    """Return what is seen of pixels with an EXIF orientation."""
    return {1: values, 2: np.fliplr(values), 3: np.rot90(values, 2), 4: np.flipud(values),
            5: values.swapaxes(0, 1), 6: np.rot90(values, -1), 7: np.rot90(values, 2).swapaxes(0, 1),
            8: np.rot90(values)}[orientation]  # fmt: skip


def upright(box, orientation):
    """Return the edges of a box in the upright image, by painting it."""
    left, top, right, bottom = box
    painted = np.zeros((HIGH, WIDE), bool)
    painted[top:bottom, left:right] = True
    rows, columns = np.nonzero(turned(painted, orientation))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


def formatted(edges, sides, form):
    """Return the numbers of a box of an image with these sides, width and height, in a format."""
    left, top, right, bottom = edges
    order, _, share = form.partition("-")
    numbers = {
        "xywh": (left, top, right - left, bottom - top),
        "xyxy": (left, top, right, bottom),
        "yxyx": (top, left, bottom, right),
        "cxcywh": ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top),
    }[order]
    scale = (sides[::-1] if order == "yxyx" else sides) * 2 if share else (1, 1, 1, 1)
    return [float(number / side) for number, side in zip(numbers, scale, strict=True)]


def with_tag(orientation, array=PHOTO):
    exif = Image.Exif()
    if orientation != 1:
        exif[0x0112] = orientation
    return picture(array, exif=exif)


def box_row(form, orientation, reference, resize=None):
    """Return a row with a picture and two boxes, which move with the upright, perhaps resized, picture."""
    seen = turned(PHOTO, orientation)
    high, wide = seen.shape[:2]
    boxes, sides = BOXES, (WIDE, HIGH)
    if reference == "upright":
        boxes, sides = [upright(box, orientation) for box in BOXES], (wide, high)
    files = {
        "in/a.png": with_tag(orientation),
        "in/in.jsonl": [{"file_name": "a.png", "bbox": [formatted(box, sides, form) for box in boxes]}],
    }
    found = [upright(box, orientation) for box in BOXES]
    given = {} if reference is None else {"boxes_in": reference}
    conversions = {}
    if orientation > 1:
        conversions = {"orientation applied": 1, "re-encoded": 1}
        conversions |= {"boxes turned": 1} if reference == "file" else {}
    if resize:
        factor = 2 if resize == "exact" else 0.5
        wide, high = int(wide * factor), int(high * factor)
        seen = np.asarray(Image.fromarray(seen).resize((wide, high), Image.Resampling.LANCZOS))
        found = [tuple(factor * edge for edge in box) for box in found]
        given["resize"] = f"{high}x{wide}" if resize == "exact" else f"short={min(wide, high)}"
        conversions |= {"resized": 1, "re-encoded": 1}
    wanted = np.array([formatted(box, (wide, high), form) for box in found], F32)
    return row(f"{form} in the {reference or 'only'} image, orientation {orientation} {resize or ''}", files,
               table("in/in.jsonl", {"bbox": form}, **given),
               stored({"train": {"a.png": {"image": seen, "bbox": wanted}}}, conversions=conversions,
                      features={"bbox": f"float float32 ? 4 {form}"}))  # fmt: skip


FORMS = ["xywh", "xyxy", "cxcywh", "yxyx"]
FORMS += [f"{form}-normalized" for form in FORMS]
BOX_ROWS = [
    *(box_row(form, 1, None) for form in FORMS),
    *(box_row("xywh", orientation, "file") for orientation in range(2, 9)),
    *(box_row("yxyx-normalized", orientation, "file") for orientation in (3, 5, 8)),
    *(box_row(form, 6 + n % 3, "file", "exact") for n, form in enumerate(FORMS)),
    *(box_row(form, 8 - n % 3, "upright") for n, form in enumerate(FORMS)),
    *(box_row(form, 1, None, "short") for form in FORMS[:5]),
]


def one(cell, role, **more):
    """Return the files of one picture and a column of annotations, and its call."""
    name = "bbox" if "w" in role or len(role.split("-")[0]) == 4 else "points"
    row_of = {"file_name": "a.png", name: cell}
    return {"in/a.png": with_tag(more.pop("orientation", 1)), "in/in.jsonl": [row_of]}, table(
        "in/in.jsonl", {name: role}, **more
    )


def edge_row(name, box, expected, **given):
    call = one(box, "xywh", **given)
    if expected is None:
        call = one(box, "xywh", max_rejected=1, **given)
        return row(f"a box {name}", *call, refused(BuildError))
    values = {"a.png": {"image": PHOTO, "bbox": np.array(expected, F32)}}
    conversions = {"boxes clipped": 1} if given and expected != box else {}
    return row(f"a box {name}", *call, stored({"train": values}, conversions=conversions))


POINTS = [[1.5, 2.5, 2, 0, 0, 0], [15.5, 0.5, 1, 8, 7, 2]]
# the same in the picture turned by orientation 6: (x, y) becomes (8 - y, x)
POINTS_6 = [[5.5, 1.5, 2, 0, 0, 0], [7.5, 15.5, 1, 1, 8, 2]]
EDGES = [
    edge_row("inside", [1, 2, 3, 4], [1, 2, 3, 4]),
    edge_row("of the whole image", [0, 0, 16, 8], [0, 0, 16, 8]),
    edge_row("that is rounded out", [-0.5, 0, 16.5, 8], [-0.5, 0, 16.5, 8]),
    edge_row("outside", [12, 0, 8, 8], None),
    edge_row("that is clipped", [12, 0, 8, 12], [12, 0, 4, 8], outside_boxes="clip"),
    edge_row("of which nothing is left", [40, 0, 20, 20], None, outside_boxes="clip"),
    edge_row("of negative width", [5, 5, -2, 2], None, outside_boxes="clip"),
    edge_row("that is infinite", [5, 5, 1e300, 2], None, outside_boxes="clip"),
    row("keypoints", *one(POINTS, "xyv"),
        stored({"train": {"a.png": {"image": PHOTO, "points": np.array(POINTS, F32)}}},
        features={"points": "float float32 ? 6 xyv"})),
    row("keypoints that are turned", *one(POINTS, "xyv", orientation=6, boxes_in="file"),
        stored({"train": {"a.png": {"image": turned(PHOTO, 6), "points": np.array(POINTS_6, F32)}}},
        conversions={"keypoints turned": 1, "orientation applied": 1, "re-encoded": 1})),
    row("keypoints that are resized", *one([[1, 2], [4, 6]], "xy", resize="16x32"),
        stored({"train": {"a.png": {"image": np.asarray(Image.fromarray(PHOTO).resize((32, 16),
        Image.Resampling.LANCZOS)), "points": np.array([[2, 4], [8, 12]], F32)}}}, conversions={"resized": 1,
        "re-encoded": 1})),
    row("no boxes in any row", *one([], "xywh"),
        stored({"train": {"a.png": {"image": PHOTO, "bbox": np.zeros((0, 4), F32)}}},
        features={"bbox": "float float32 ? 4 xywh"})),
    row("an image without boxes",
        {"in/a.png": PHOTO, "in/b.png": PHOTO, "in/in.jsonl": [{"file_name": "a.png", "bbox": []},
        {"file_name": "b.png", "bbox": [[1, 2, 3, 4]]}]}, table("in/in.jsonl", {"bbox": "xywh"}),
        stored({"train": {"a.png": {"image": PHOTO, "bbox": np.zeros((0, 4), F32)}, "b.png": {"image": PHOTO,
        "bbox": np.array([[1, 2, 3, 4]], F32)}}})),
    row("boxes of structs",
        {"in/a.png": with_tag(6), "in/in.jsonl": [{"file_name": "a.png", "objects": {"bbox": [[1, 2, 4, 4],
        [8, 0, 8, 4]], "kind": ["p", "q"]}}]}, table("in/in.jsonl", {"objects/bbox": "xywh"},
        boxes_in="file"), stored({"train": {"a.png": {"image": turned(PHOTO, 6), "objects/kind": ["p", "q"],
        "objects/bbox": np.array([formatted(upright(box, 6), (8, 16), "xywh") for box in BOXES], F32)}}},
        conversions={"boxes turned": 1, "orientation applied": 1, "re-encoded": 1})),
    row("a turned image without a declaration", *one([[1, 2, 3, 4]], "xywh", orientation=6, max_rejected=1),
        refused(BuildError)),
    row("a turned image is counted",
        {"in/a.png": with_tag(6), "in/b.png": PHOTO, "in/in.jsonl": [{"file_name": name, "bbox": [[1, 2, 3,
        4]]} for name in ("a.png", "b.png")]}, table("in/in.jsonl", {"bbox": "xywh"}, max_rejected="50%"),
        stored({"train": {"b.png": {"image": PHOTO, "bbox": np.array([[1, 2, 3, 4]], F32)}}},
        rejected={"boxes do not fit": 1})),
    *(row(f"boxes of {name}", {"in/a.png": PHOTO, "in/in.jsonl": [{"file_name": "a.png", "b": cell}]},
        table("in/in.jsonl", {"b": role}), refused(InputError, "'b'")) for name, cell,
        role in [("one number", 1, "xyxy"), ("three numbers", [1, 2, 3], "xyxy"), ("rows of three",
        [[1, 2, 3]], "xyxy"), ("text", ["1", "2"], "xy")]),
]  # fmt: skip

# COCO: ids of categories have gaps, and are in no order

CATEGORIES = [{"id": 18, "name": "dog"}, {"id": 1, "name": "person"}, {"id": 3, "name": "car"}]
NAMES = ("person", "car", "dog")
# per image: boxes, classes, crowds, areas
OBJECTS = {
    "000000000009.png": ([[1.5, 2, 2, 1], [0, 0, 4, 3]], ["dog", "person"], [True, False], [12.5, 48.0]),
    "000000000025.png": ([], [], [], []),
    "000000000030.png": ([[4, 1, 1, 2.25]], ["car"], [False], [4.5]),
}


def sides(number):
    return {"height": pixels(number).shape[0], "width": pixels(number).shape[1]}


def document(**others):
    ids = {each["name"]: each["id"] for each in CATEGORIES}
    annotations = [
        {"image_id": 7 * number, "category_id": ids[name], "bbox": box, "area": area, "iscrowd": int(crowd)}
        for number, values in enumerate(OBJECTS.values())
        for box, name, crowd, area in zip(*values, strict=True)
    ]
    images = [{"id": 7 * n, "file_name": name, **sides(n)} for n, name in enumerate(OBJECTS)]
    annotations.sort(key=lambda each: -each["image_id"])
    return {"info": {}, "images": images, "annotations": annotations, "categories": CATEGORIES, **others}


def of_coco(annotations, folder, text=None):
    """Return the files of annotations and of their images in a folder."""
    content = document() if text is None else text
    return {annotations: content} | {f"{folder}/{name}": number for number, name in enumerate(OBJECTS)}


def objects(prefix=""):
    return {
        prefix + name: {"image": number, "image_id": 7 * number,
        "objects/bbox": np.array(boxes, F32).reshape(-1, 4),
                        "objects/category": classes, "objects/iscrowd": np.array(crowds, bool),
                        "objects/area": np.array(areas, F32)}
        for number, (name, (boxes, classes, crowds, areas)) in enumerate(OBJECTS.items())
    }  # fmt: skip


def split_of(name, folder):
    return {name: objects(f"{folder}/" if folder else "")}


FEATURES = {
    "objects/bbox": "float float32 ? 4 xywh",
    "objects/category": "label int64 ?",
    "objects/iscrowd": "int bool ?",
}
INSTANCES = "in/annotations/instances_{}.json"
COCO = [
    row("COCO", of_coco(INSTANCES.format("train2017"), "in/train2017") | of_coco(INSTANCES.format("val2017"),
        "in/val2017"), coco(), stored(split_of("train", "train2017") | split_of("val", "val2017"), *NAMES,
        features=FEATURES)),
    row("COCO below images",
        of_coco(INSTANCES.format("train"), "in/images/train") | of_coco(INSTANCES.format("test"),
        "in/images/test"), coco(), stored(split_of("train", "images/train") | split_of("test", "images/test"),
        *NAMES)),
    row("Roboflow's COCO",
        of_coco("in/train/_annotations.coco.json", "in/train") | of_coco("in/valid/_annotations.coco.json",
        "in/valid"), coco(), stored(split_of("train", "train") | split_of("valid", "valid"), *NAMES)),
    row("one file of COCO", of_coco(INSTANCES.format("val2017"), "in/val2017"),
        coco(INSTANCES.format("val2017")), stored(split_of("val", "val2017"), *NAMES)),
    row("one file of COCO next to its images", of_coco("in/any.json", "in"), coco("in/any.json"),
        stored(split_of("train", ""), *NAMES)),
    row("one file of COCO with a root", of_coco("any.json", "elsewhere"), coco("any.json", root="elsewhere"),
        stored(split_of("train", ""), *NAMES)),
    row("a missing image of COCO is counted", {n: c for n, c in of_coco("in/any.json", "in").items()
        if "25" not in n}, coco("in/any.json", max_rejected="50%"), stored({"train": {n: v for n,
        v in objects().items() if "25" not in n}}, *NAMES, rejected={"missing": 1})),
    *(row(f"COCO whose sizes are {name}", of_coco("in/any.json", "in", document(images=[{**each,
        **sizes(each)} for each in document()["images"]])), coco("in/any.json"), stored(split_of("train", ""),
        *NAMES, warns=words)) for name, sizes, words in (("turned", lambda each: {"width": each["height"],
        "height": each["width"]}, ()), ("others", lambda _: {"width": 640, "height": 480}, ("3 of 3",
        "not (640, 480)")))),
    row("given names of COCO", of_coco("in/any.json", "in"), coco("in/any.json", class_names=["dog", "new",
        "car", "person"]), stored(split_of("train", ""), "dog", "new", "car", "person")),
]  # fmt: skip


def image_with(**values):
    return document(images=[{**document()["images"][0], **values}], annotations=[])


def categories(*names):
    return document(annotations=[], categories=[{"id": n, "name": name} for n, name in enumerate(names)])


# what is no list of images and objects, and the words that name it
WRONG_COCO = {
    "a list": ([], "images"), "no annotations": (document(annotations=None), "annotations"),
    "no images": (document(images=[], annotations=[]), "any.json"),
    "no categories": (document(categories=None), "categories"),
    "no id": (document(images=[{}]), "images[0].id"),
    "an image twice": (document(images=document()["images"] * 2), "images[3].id"),
    "an id beyond int64": (image_with(id=2**70), "images[0].id"),
    "a fraction as id": (image_with(id=1.5), "images[0].id"),
    "no path": (image_with(file_name="a\0"), "images[0].file_name"),
    "a name twice": (categories("a", "b", "a"), "'a'"),
    "no name": (categories("a", None), "categories[1].name"),
    "an empty name": (categories(""), "categories[0].name"),
}  # fmt: skip
# what is wrong in an annotation, and the word that names it
FAULTS = {
    "three numbers": ({"bbox": [1, 2, 3]}, "bbox"), "text": ({"bbox": "1234"}, "bbox"),
    "no box": ({"bbox": None}, "bbox"), "numbers in text": ({"bbox": ["1", "2", "3", "4"]}, "bbox"),
    "NaN": ({"bbox": [float("nan"), 1, 2, 3]}, "bbox"), "beyond float32": ({"bbox": [1e39, 0, 1, 1]}, "bbox"),
    "beyond float64": ({"bbox": [10**400, 0, 1, 1]}, "bbox"),
    "a negative width": ({"bbox": [5, 4, -5, -1]}, "bbox"),
    "a crowd of text": ({"iscrowd": "0"}, "iscrowd"), "an area of text": ({"area": "1"}, "area"),
    "two keypoints": ({"keypoints": [1, 2]}, "keypoints"),
    "keypoints of text": ({"keypoints": "x"}, "keypoints"),
    "an unknown class": ({"category_id": 99}, "category_id"),
    "a class of text": ({"category_id": "person"}, "category_id"),
    "a class of lists": ({"category_id": [1]}, "category_id"),
}  # fmt: skip
# segmentations that are not polygons
SHAPES = {
    "one point": [[128, 128]], "two points": [[1, 1, 2, 2]], "an empty polygon": [[]],
    "a flat list": [0, 0, 1, 1, 1, 0], "RLE in a list": [{"counts": [1], "size": [1, 1]}],
    "text of a polygon": "1 2 3 4 5 6", "an odd count": [[0, 0, 1, 1, 1]], "a point of text": [["0"] * 6],
}  # fmt: skip


def without(*names):
    """Return the examples of the files of ``of_coco`` but for these."""
    return {"train": {name: values for name, values in objects().items() if name not in names}}


def faulty(**values):
    """Return a document of which the first annotation, that of the last image, has these values."""
    found = document()
    found["annotations"][0] |= values
    return found


LAST = [*OBJECTS][-1]
TOLERANT = {"max_rejected": "50%"}
COCO_FAULTS = [
    *(row(f"a fault of COCO with {name}", of_coco("in/any.json", "in", faulty(**values)), coco("in/any.json",
        **TOLERANT), stored(without(LAST), *NAMES, rejected={"box outside" if "negative" in name else
        "invalid annotation": 1})) for name, (values, _) in FAULTS.items()),
    *(row(f"COCO whose annotation has {name}", of_coco("in/any.json", "in", faulty(**values)),
        coco("in/any.json"), refused(BuildError, word, "1 box" if "negative" in name else
        "any.json: annotations[0]")) for name, (values, word) in FAULTS.items()),
    *(row(f"a segmentation of {name} that is not stored", of_coco("in/any.json", "in",
        faulty(segmentation=shape)), coco("in/any.json"), stored(without(), *NAMES,
        warns=("annotations.segmentation (1)",))) for name, shape in SHAPES.items()),
    *(row(f"a segmentation of {name}", of_coco("in/any.json", "in", faulty(segmentation=shape)),
        coco("in/any.json", segmentations=True), refused(BuildError, "annotations[0].segmentation"))
        for name, shape in SHAPES.items()),
    *(row(f"{name} that is not stored", of_coco("in/any.json", "in", faulty(**values)), coco("in/any.json",
        {f"objects/{name}": "drop"}), stored({"train": {key: {feature: value for feature, value in
        example.items() if feature != f"objects/{name}"} for key, example in objects().items()}}, *NAMES))
        for name, values in {"area": {"area": "1"}, "iscrowd": {"iscrowd": []},
        "keypoints": {"keypoints": [1]}, "bbox": {"bbox": 5}}.items()),
    row("classes of COCO that are not stored", of_coco("in/any.json", "in", document(categories=None)),
        coco("in/any.json", {"objects/category": "drop"}), stored({"train": {key: {feature: value for feature,
        value in example.items() if feature != "objects/category"} for key, example in objects().items()}})),
    *(row(f"annotations of COCO {name}", of_coco("in/any.json", "in", document(annotations=[*document()[
        "annotations"], found])), coco("in/any.json"), stored(without(), *NAMES,
        warns=("annotations without their image (1)",))) for name, found in {"of no image": {"image_id": 5},
        "of half an image": {"image_id": 0.5}}.items()),
]  # fmt: skip
COCO_REFUSALS = [
    *(row(f"annotations of COCO {name}", of_coco("in/any.json", "in", document(annotations=[*document()[
        "annotations"], found])), coco("in/any.json"), refused(InputError,
        "any.json: annotations[3].image_id", word)) for name, found, word in (("of an image in text",
        {"image_id": "0"}, "str"), ("of a list", {"image_id": [0]}, "list"), ("of no id", {}, "null"),
        ("that are numbers", 5, "null"), ("of true", {"image_id": True}, "bool"))),
    row("annotations of COCO in text alone", of_coco("in/any.json", "in", document(annotations=[{**each,
        "image_id": str(each["image_id"])} for each in document()["annotations"]])), coco("in/any.json"),
        refused(InputError, "any.json: annotations[0].image_id", "'14'", "str")),
    *(row(f"annotations of COCO of other images by {change}", of_coco("in/any.json", "in", document(
        annotations=[{**each, "image_id": each["image_id"] + change} for each in document()["annotations"]])),
        coco("in/any.json"), refused(InputError, "any.json", "annotations[0].image_id is 1", "0, 7"))
        for change in (1, 0.5)),
    row("a split of COCO whose annotations are of other images", of_coco(INSTANCES.format("train"),
        "in/train") | of_coco(INSTANCES.format("val"), "in/val", document(annotations=[{"image_id": 99}])),
        coco(), refused(InputError, "instances_val.json", "image_id")),
    *(row(f"COCO with {name}", of_coco("in/any.json", "in", text), coco("in/any.json"), refused(InputError,
        where)) for name, (text, where) in WRONG_COCO.items()),
    *(row(f"captions of COCO {name}", of_coco("in/any.json", "in", document(annotations=[{"image_id": 0,
        "caption": "a"}], **more)), coco("in/any.json"), refused(error, word)) for name, more, error, word in
        (("without categories", {"categories": None}, InputError, "categories"), ("with categories", {},
        BuildError, "annotations[0].bbox"))),
    row("COCO that is no JSON", of_coco("in/any.json", "in", "{"), coco("in/any.json"), refused(InputError,
        "any.json")),
    row("COCO that is nested deeply", of_coco("in/any.json", "in", "[" * 100_000), coco("in/any.json"),
        refused(InputError, "any.json")),
    row("COCO without files", {"in/a.png": 1}, coco(), refused(InputError, "in")),
    row("COCO without images", {"in/any.json": document()}, coco("in/any.json"), refused(InputError,
        "in")),
    row("COCO of other categories",
        of_coco(INSTANCES.format("train"), "in/train") | of_coco(INSTANCES.format("val"), "in/val",
        document(categories=CATEGORIES[1:], annotations=[])), coco(), refused(InputError)),
    row("a box of COCO outside", of_coco("in/any.json", "in", faulty(bbox=[4, 4, 50, 50])),
        coco("in/any.json"), refused(BuildError, "objects/bbox")),
]  # fmt: skip

# Keypoints and polygons of COCO: one picture of 16 x 8 pixels

POSE = {
    "images": [{"id": 0, "file_name": "a.png", "width": WIDE, "height": HIGH}],
    "annotations": [{"id": 0, "image_id": 0, "category_id": 1, "bbox": [1, 2, 4, 4], "keypoints": [1.5, 2.5,
        2, 0, 0, 0], "area": 5, "iscrowd": 0, "segmentation": [[1.5, 2.5, 4.5, 0.5, 6.5, 5.5]]},
        {"id": 1, "image_id": 0, "category_id": 1, "bbox": [8, 0, 8, 4], "keypoints": [15.5, 0.5, 1, 8, 7, 2],
        "area": 6.5, "iscrowd": 1, "segmentation": [[9, 1, 10, 1, 10, 2], [12, 2, 14, 2, 14, 3, 12, 3]]}, ],
    "categories": [{"id": 1, "name": "person", "keypoints": ["left", "right"]}],
}  # fmt: skip
CORNERS = [[1.5, 2.5], [4.5, 0.5], [6.5, 5.5], [9, 1], [10, 1], [10, 2], [12, 2], [14, 2], [14, 3], [12, 3]]


def pose_row(orientation, name, moved, points, **given):
    boxes = [formatted(upright(box, orientation), (1, 1), "xywh") for box in BOXES]
    values = {
        "image": turned(PHOTO, orientation),
        "image_id": 0,
        "objects/bbox": np.array(boxes, F32),
        "objects/category": ["person", "person"],
        "objects/keypoints": np.array(points, F32),
        "objects/area": np.array([5, 6.5], F32),
        "objects/iscrowd": np.array([False, True]),
    }
    if given:
        values |= {
            "polygons/points": np.array(moved, F32),
            "polygons/lengths": np.array([3, 3, 4]),
            "polygons/object": np.array([0, 1, 1]),
            "objects/index": np.array([0, 1]),
        }
    conversions = {"orientation applied": 1, "re-encoded": 1, "boxes turned": 1, "keypoints turned": 1}
    return row(f"pose {name}", {"in/k.json": POSE, "in/a.png": with_tag(orientation)},
    coco("in/k.json", **given),
               stored({"train": {"a.png": values}}, "person",
               conversions=conversions if orientation > 1 else {}))  # fmt: skip


POSES = [
    pose_row(1, "of COCO", CORNERS, POINTS),
    pose_row(1, "with polygons", CORNERS, POINTS, segmentations=True),
    pose_row(6, "turned", [[8 - y, x] for x, y in CORNERS], POINTS_6, segmentations=True, boxes_in="file"),
]

# YOLO

LINES = {
    "a.png": "1 0.5 0.5 0.25 0.5\n0 0.25 0.125 0.5 0.25\n",
    "b.png": "\n",
    "deep/c.png": "2 0.875 0.5 0.25 1",
}
YAML = "path: {}\ntrain: images/train\nval: [images/val]\ntest: # optional\nnames:\n{}"
BY_NUMBER = "".join(f"  {number}: {name}\n" for number, name in enumerate(NAMES))
ROBOFLOW = "train: ../train/images\nval: ../val/images\nnc: 3\nnames: ['person', 'car', 'dog']\n"


def of_yolo(images, labels, **others):
    """Return pictures below a folder, and a text file for each below another."""
    files = {f"in/{images}/{name}": number for number, name in enumerate(LINES)}
    files |= {f"in/{labels}/{name[:-4]}.txt": text for name, text in LINES.items()}
    return files | {f"in/{name.replace('_', '.')}": text for name, text in others.items()}


def boxed(folder, names=None, lines=LINES):
    found = {}
    for number, (name, text) in enumerate(lines.items()):
        numbers = [line.split() for line in text.split("\n") if line]
        classes = [int(each[0]) for each in numbers]
        found[f"{folder}/{name}" if folder else name] = {
            "image": number,
            "objects/bbox": np.array([each[1:] for each in numbers], F32).reshape(-1, 4),
            "objects/category": [names[n] for n in classes] if names else np.array(classes, np.int64),
        }
    return found


def both(images, labels, **others):
    return of_yolo(images.format("train"), labels.format("train"), **others) | of_yolo(
        images.format("val"), labels.format("val")
    )


def two(images, names=None):
    return {split: boxed(images.format(split), names) for split in ("train", "val")}


YOLO = [
    row("YOLO of Ultralytics", both("images/{}", "labels/{}", data_yaml=YAML.format("../none", BY_NUMBER)),
        yolo(),
        stored(two("images/{}", NAMES), *NAMES,
        features={"objects/bbox": "float float32 ? 4 cxcywh-normalized"})),
    row("YOLO by its data.yaml", both("images/{}", "labels/{}", data_yaml=YAML.format(".", " [a, no, 3]")),
        yolo("in/data.yaml"), stored(two("images/{}", ["a", "no", "3"]), "a", "no", "3")),
    row("YOLO of Roboflow", both("{}/images", "{}/labels", data_yaml=ROBOFLOW), yolo(),
        stored(two("{}/images", NAMES), *NAMES)),
    row("YOLO without names", both("images/{}", "labels/{}"), yolo(), stored(two("images/{}"))),
    row("YOLO with a file of names", both("images/{}", "labels/{}", classes_txt="\n".join(NAMES) + "\n"),
        yolo(), stored(two("images/{}", NAMES), *NAMES)),
    row("YOLO with text next to images", both("{}", "{}"), yolo(), stored(two("{}"))),
    row("YOLO of one folder", of_yolo("images", "labels"), yolo(), stored({"train": boxed("images")})),
    row("YOLO with a background", of_yolo("images", "labels") | {"in/images/z.png": 9}, yolo(),
        stored({"train": boxed("images") | {"images/z.png": {"image": 9, "objects/bbox": np.zeros((0, 4),
        F32), "objects/category": np.array([], int)}}}, warns=("z.png",))),
    row("YOLO with lists", of_yolo("images", "labels", train_txt="./images/b.png\nimages/deep/c.png\n",
        val_txt="images/a.png", data_yaml="train: train.txt\nval: [val.txt]\nnames: [person, car, dog]"),
        yolo(), stored({"train": {k: v for k, v in boxed("images", NAMES).items() if "a.png" not in k},
        "val": {k: v for k, v in boxed("images", NAMES).items() if "a.png" in k}}, *NAMES)),
    row("YOLO with a text file of no image", of_yolo("images", "labels") | {"in/labels/z.txt": "0 .5 .5 1 1"},
        yolo(), stored({"train": boxed("images")}, warns=("z.txt",))),
    row("YOLO with keypoints", {"in/a.png": 0, "in/a.txt": "1 0.5 0.5 0.5 0.25 0.25 0.125 2 0.75 0.5 1 0 0 0",
        "in/data.yaml": "train: .\nnames: [x, y]\nkpt_shape: [3, 3]"}, yolo(),
        stored({"train": {"a.png": {"image": 0, "objects/bbox": np.array([[0.5, 0.5, 0.5, 0.25]], F32),
        "objects/category": ["y"], "objects/keypoints": np.array([[0.25, 0.125, 2, 0.75, 0.5, 1, 0, 0, 0]],
        F32)}}}, "x", "y", features={"objects/keypoints": "float float32 ? 9 xyv-normalized"})),
    row("YOLO with polygons",
        {"in/a.png": 0, "in/a.txt": "1 0.25 0.25 0.75 0.25 0.75 0.5",
        "in/data.yaml": "train: .\nnames: [x, y]"}, yolo(segmentations=True),
        stored({"train": {"a.png": {"image": 0, "objects/bbox": np.array([[0.5, 0.375, 0.5, 0.25]], F32),
        "objects/category": ["y"], "polygons/points": np.array([[0.25, 0.25], [0.75, 0.25], [0.75, 0.5]],
        F32), "polygons/lengths": np.array([3]), "polygons/object": np.array([0]),
        "objects/index": np.array([0])}}}, "x", "y")),
]  # fmt: skip
WRONG_YOLO = {
    "a name twice": ("classes.txt", "a\nb\na\n"), "deep YAML": ("data.yaml", "[" * 1000),
    "no YAML": ("data.yaml", "a: ["), "an alias": ("data.yaml", "a: &x [1]\nb: *x"),
    "an anchor": ("data.yaml", "a: &x [1]"), "a list": ("data.yaml", "[1]"),
    "a long value": ("data.yaml", "a: " + "1" * 20_000), "gaps": ("data.yaml", "train: .\nnames: {1: a}"),
    "one name": ("data.yaml", "train: .\nnames: a"), "a list as name": ("data.yaml", "train: .\nnames: [[]]"),
    "lists of splits": ("data.yaml", "train: [[.]]"), "a list as path": ("data.yaml", "path: [.]\ntrain: ."),
    "a missing folder": ("data.yaml", "train: none"), "no splits": ("data.yaml", "names: [a]"),
    "another number of classes": ("data.yaml", "train: .\nnc: 3\nnames: [a, b]"),
    "keypoints of one number": ("data.yaml", "kpt_shape: [17]\ntrain: ."),
    "many keypoints": ("data.yaml", f"train: .\nkpt_shape: [{'9' * 5000}, 2]"),
    "keypoints of text": ("data.yaml", "kpt_shape: 17\ntrain: ."),
}  # fmt: skip
# the text file of a.png, and the word that names what is wrong with it
LINE_FAULTS = {
    "a polygon": ("0 0 0 1 1 0 1", "a.txt:1"), "a class of text": ("0 .5 .5 1 1\nx .5 .5 1 1", "a.txt:2"),
    "a class of a fraction": ("0.5 .5 .5 1 1", "0.5"), "a large class": ("1e30 .5 .5 1 1", "1e30"),
    "a class that is not a number": ("nan .5 .5 1 1", "nan"), "a class below 0": ("-1 .5 .5 1 1", "-1"),
    "a class without a name": ("3 .5 .5 1 1", "from 0 to 2"), "three numbers": ("0 .5 .5 1", "3 numbers"),
    "decimal commas": ("1 0,5 0,5 0,25 0,25", "'0,5'"), "semicolons": ("1;0.5;0.5;0.25;0.25", "'1;0.5"),
    "a word after the box": ("1 0.5 0.5 0.25 0.25 cat", "'cat'"),
    "a header": ("class x y w h\n1 0.5 0.5 0.25 0.25", "a.txt:1"),
    "UTF-16": ("1 .5 .5 1 1".encode("utf-16"), "UTF-16"), "Latin-1": (b"1 .5 .5 1 1 \xe9", "UTF-8"),
    **{f"{count} keypoints of {width} numbers without kpt_shape": (f"1 .5 .5 .5 .5{' .5' * count * width}",
       "kpt_shape") for count in (1, 2) for width in (2, 3)},
}  # fmt: skip


def of_lines(text):
    """Return files of which a.png has this text file, and the names of the classes."""
    return of_yolo(".", ".", classes_txt="\n".join(NAMES)) | {"in/a.txt": text}


def without_a():
    kept = {name: value for name, value in boxed("", NAMES).items() if name != "a.png"}
    return stored({"train": kept}, *NAMES, rejected={"invalid annotation": 1})


YOLO_FAULTS = [
    *(row(f"YOLO whose text has {name}", of_lines(text), yolo(), refused(BuildError, word))
        for name, (text, word) in LINE_FAULTS.items()),
    *(row(f"a fault of YOLO with {name}", of_lines(text), yolo(max_rejected="50%"), without_a())
        for name, (text, _) in LINE_FAULTS.items()),
    *(row(f"a fault of {name} in YOLO with segmentations", of_lines(LINE_FAULTS[name][0]), yolo(
        segmentations=True), refused(BuildError, word)) for name, word in (("three numbers",
        "3 numbers"), ("decimal commas", "'0,5'"), ("1 keypoints of 3 numbers without kpt_shape",
        "kpt_shape"))),
]  # fmt: skip
YOLO_REFUSALS = [
    *(row(f"YOLO with {name}", of_yolo(".", ".") | {f"in/{file}": text}, yolo(), refused(InputError,
        file)) for name, (file, text) in WRONG_YOLO.items()),
    row("YOLO with equal names", of_yolo(".", ".", data_yaml="train: .\nnames: [a, b, a]"), yolo(),
        refused(InputError, "'a'")),
    row("YOLO of no folder", {}, yolo("none"), refused(InputError, "none")),
    row("YOLO of a text file", {"x.txt": ""}, yolo("x.txt"), refused(InputError, "x.txt")),
    row("YOLO without boxes", {"in/a.png": 0}, yolo(), refused(InputError, "in")),
    row("YOLO with a root", of_yolo(".", "."), yolo(root="in"), refused(OptionsError)),
    row("a text file of YOLO outside", {"in/a.png": 0, "in/a.txt": Link("../a.txt"), "a.txt": "0 .5 .5 1 1"},
        yolo(), refused(InputError, "a.txt")),
]  # fmt: skip

# Boxes that state the size of their image, and columns of numbers


def stated(orientation, size, boxes=((1, 2, 3, 2), (0, 0, 1, 1)), **given):
    """Return files of COCO that state a size of their image, which is 16 x 8 in its file, and the call."""
    image = {"id": 1, "file_name": "a.png"} | (
        dict(zip(("width", "height"), size, strict=True)) if size else {}
    )
    found = {
        "images": [image],
        "categories": [{"id": 1, "name": "x"}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": [*box]} for box in boxes],
    }
    files = {"in/a.json": found, "in/a.png": with_tag(orientation)}
    return files, coco("in/a.json", {"objects/area": "drop"}, **given)


def kept(orientation, boxes=((1, 2, 3, 2), (0, 0, 1, 1))):
    """Return what is stored of ``stated``: boxes as they are."""
    values = {"image": turned(PHOTO, orientation), "image_id": 1, "objects/category": ["x"] * len(boxes)}
    values["objects/bbox"] = np.array(boxes, F32).reshape(-1, 4)
    values["objects/iscrowd"] = np.zeros(len(boxes), bool)
    conversions = {"orientation applied": 1, "re-encoded": 1} if orientation > 1 else {}
    return stored({"train": {"a.png": values}}, "x", conversions=conversions)


FITTING = {"no orientation": (1, (16, 8)), "no size": (1, None)}
# nothing shows whether boxes refer to the pixels in the file
TURNED = {"its upright size": (6, (8, 16)), "its size": (6, (16, 8)), "no size": (6, None)}


def of_columns(values, role, orientation=1, **given):
    return {"in/a.png": with_tag(orientation), "in/in.jsonl": [values]}, table("in/in.jsonl", role, **given)


def four(values, orientation, also=None):
    found = {"image": turned(PHOTO, orientation), **values}
    conversions = {"orientation applied": 1, "re-encoded": 1, **(also or {})}
    return stored({"train": {"a.png": found}}, conversions=conversions)


BOX = {"file_name": "a.png", "bbox": [1, 2, 3, 4]}
SIZED = {"width": 16, "height": 8}
ONE_6 = np.array(formatted(upright((1, 2, 4, 6), 6), (8, 16), "xywh"), F32)
NUMBERS = [
    *(row(f"COCO states {name}", *stated(*found), kept(found[0])) for name, found in FITTING.items()),
    *(row(f"COCO of a turned image states {name}", *stated(*found, max_rejected=1),
          refused(BuildError, "boxes_in=")) for name, found in TURNED.items()),
    row("COCO of a half turn without boxes", *stated(3, (16, 8), ()), kept(3, ())),
    row("COCO of a half turn without a check", *stated(3, (16, 8), check="none"), refused(OptionsError,
        "objects/bbox")),
    row("COCO of a half turn that is declared", *stated(3, (16, 8), boxes_in="upright"), kept(3)),
    row("a column of boxes that are values", *of_columns(BOX, {"bbox": "value"}, 6), four({"bbox":
        BOX["bbox"]}, 6)),
    row("sizes in columns do not declare what boxes refer to", *of_columns({**BOX, **SIZED}, {"bbox": "xywh"},
        6, max_rejected=1), refused(BuildError)),
    row("columns of sizes next to declared boxes", *of_columns({**BOX, **SIZED}, {"bbox": "xywh"}, 6,
        boxes_in="file"), four({"bbox": ONE_6, **SIZED}, 6, also={"boxes turned": 1})),
    edge_row("outside that is kept", [12, 0, 8, 12], [12, 0, 8, 12], outside_boxes="keep"),
    *(row(f"a kept box {name}", *one(box, "xywh", outside_boxes="keep", max_rejected=1), refused(BuildError))
        for name, box in {"of negative width": [5, 5, -2, 2], "with a missing number": [5, 5, None,
        2]}.items()),
]  # fmt: skip

# Layouts of COCO and YOLO that are rare

SEVERAL = {
    "images": [{"id": n, "file_name": f"{name}.png", "license": 4} for n, name in enumerate("ab")],
    "annotations": [{**POSE["annotations"][0], "num_keypoints": 1, "iscrowd": 0},
        {"image_id": 0, "category_id": 1, "bbox": [0, 0, 2, 2], "iscrowd": 1, "segmentation": {"counts": [10,
        3, 35], "size": [6, 8]}}],
    "categories": POSE["categories"],
}  # fmt: skip
SEVERAL_VALUES = {
    "image_id": 0, "objects/bbox": np.array([[1, 2, 4, 4], [0, 0, 2, 2]], F32),
    "objects/category": ["person", "person"], "objects/iscrowd": np.array([False, True]),
}  # fmt: skip
MIXED = "1 0.25 0.125 0.75 0.125 0.5 0.625\n0 0.5 0.5 0.25 0.25"
POSE_YAML = "train: .\nnames: [x, y]\nkpt_shape: [1, 2]"


def yolo_of(text, config="train: .\nnames: [x, y]", **given):
    return {"in/a.png": 0, "in/a.txt": text, "in/data.yaml": config}, yolo(**given)


LAYOUTS = [
    row("no file of COCO", {}, coco("none.json"), refused(InputError, "none.json")),
    row("an image of COCO that is named twice", {"in/a.png": 1, "in/any.json": document(annotations=[],
        images=[{"id": n, "file_name": name} for n, name in enumerate(("a.png", "./a.png"))])},
        coco("in/any.json"), refused(InputError, "a.png")),
    row("a folder of YOLO in two splits", of_yolo("images", "labels", data_yaml="train: images\nval: images"),
        yolo(), refused(InputError, "a.png")),
    row("an image of YOLO that is listed twice", of_yolo("images", "labels", data_yaml="train: list.txt",
        list_txt="images/a.png\n./images/a.png"), yolo(), refused(InputError, "a.png")),
    row("keypoints of COCO whose numbers differ", {"in/a.png": PHOTO, "in/k.json": {**POSE, "annotations":
        [POSE["annotations"][0], {**POSE["annotations"][1], "keypoints": [1, 2, 2]}]}}, coco("in/k.json"),
        refused(BuildError, "keypoints")),
    row("polygons of COCO without objects", {"in/k.json": POSE, "in/a.png": PHOTO}, coco("in/k.json",
        {"objects": "drop"}, segmentations=True), stored({"train": {"a.png": {"image": PHOTO, "image_id": 0,
        "polygons/points": np.array(CORNERS, F32), "polygons/lengths": [3, 3, 4], "polygons/object": [0, 1,
        1]}}})),
    row("images of COCO twice", of_coco(INSTANCES.format("train"), "in/train") | of_coco(
        INSTANCES.format("val"), "in/train"), coco(root="in/train"), refused(InputError,
        "000000000009.png")),
    *(row(f"a root of {name} that is none", of_coco("in/any.json", "in"), call("in", root="none"),
        refused(InputError, "not a folder; name")) for name, call in (("COCO", coco), ("YOLO", yolo))),
    *(row(f"COCO in instances_{name}.json", of_coco(f"in/instances_{name}.json", "in"),
        coco(f"in/instances_{name}.json"), stored(split_of(split, ""), *NAMES)) for name,
        split in (("test", "test"), ("custom", "train"))),
    row("what is left out of COCO is counted", {"in/k.json": SEVERAL, "in/a.png": PHOTO, "in/b.png": PHOTO},
        coco("in/k.json", roles={"objects/keypoints": "drop", "objects/area": "drop"}),
        stored({"train": {"a.png": {"image": PHOTO, **SEVERAL_VALUES}, "b.png": {"image": PHOTO,
        "image_id": 1, **{n: value[:0] for n, value in SEVERAL_VALUES.items() if n != "image_id"}}}},
        "person", warns=("annotations.segmentation (2)",))),
    row("keypoints and polygons that some lack", {"in/k.json": SEVERAL, "in/a.png": PHOTO, "in/b.png": PHOTO},
        coco("in/k.json", roles={"objects/area": "drop"}, segmentations=True, splits={"a": 1}),
        stored({"a": {"a.png": {"image": PHOTO, **SEVERAL_VALUES, "objects/keypoints": np.array([POINTS[0],
        [0] * 6], F32), "polygons/points": np.array(CORNERS[:3], F32), "polygons/lengths": [3],
        "polygons/object": [0], "objects/index": [0, 1]}, "b.png": {"image": PHOTO, "image_id": 1, **{n:
        value[:0] for n, value in SEVERAL_VALUES.items() if n != "image_id"}, "objects/keypoints":
        np.zeros((0, 6), F32), "polygons/points": np.zeros((0, 2), F32), "polygons/lengths": np.array([],
        int), "polygons/object": np.array([], int), "objects/index": np.array([], int)}}}, "person",
        warns=("without polygons (1)",))),
    row("other kinds of files of COCO", of_coco(INSTANCES.format("val2017"), "in/val2017")
        | {"in/annotations/person_keypoints_val2017.json": POSE, "in/annotations/captions_val2017.json": {}},
        coco(), stored(split_of("val", "val2017"), *NAMES,
        warns=("captions_val2017.json, person_keypoints_val2017.json",))),
    row("YOLO with polygons and boxes", *yolo_of(MIXED, segmentations=True),
        stored({"train": {"a.png": {"image": 0, "objects/bbox": np.array([[0.5, 0.375, 0.5, 0.5], [0.5, 0.5,
        0.25, 0.25]], F32), "objects/category": ["y", "x"], "polygons/points": np.array([[0.25, 0.125],
        [0.75, 0.125], [0.5, 0.625]], F32), "polygons/lengths": [3], "polygons/object": [0],
        "objects/index": [0, 1]}}}, "x", "y")),
    row("YOLO whose polygons may be keypoints", *yolo_of("1 .25 .25 .75 .25 .75 .75 .25 .75",
        segmentations=True), stored({"train": {"a.png": {"image": 0, "objects/bbox": np.array([[0.5] * 4],
        F32), "objects/category": ["y"], "polygons/points": np.array([[0.25, 0.25], [0.75, 0.25], [0.75,
        0.75], [0.25, 0.75]], F32), "polygons/lengths": [4], "polygons/object": [0], "objects/index": [0]}}},
        "x", "y", warns=("may be boxes", "kpt_shape"))),
    row("YOLO with points of two numbers", *yolo_of("1 0.5 0.5 0.5 0.25 0.25 0.125", POSE_YAML),
        stored({"train": {"a.png": {"image": 0, "objects/bbox": np.array([[0.5, 0.5, 0.5, 0.25]], F32),
        "objects/category": ["y"], "objects/keypoints": np.array([[0.25, 0.125]], F32)}}}, "x", "y",
        features={"objects/keypoints": "float float32 ? 2 xy-normalized"})),
    row("YOLO with keypoints and polygons", *yolo_of("1 .5 .5 .5 .25 .2 .1", POSE_YAML, segmentations=True),
        refused(InputError, "kpt_shape")),
    *(row(f"YOLO with keypoints and {name}", *yolo_of(text, POSE_YAML), refused(BuildError, word))
        for name, text, word in (("a box", "1 .5 .5 .5 .25", "4 numbers"), ("pixels", "1 .5 .5 .5 .25 2 .5",
        "objects/keypoints"))),
    row("a list of YOLO with a NUL", of_yolo(".", "../labels", list_txt="\n" * 64 + "a\0b.png\n",
        data_yaml="train: list.txt"), yolo(), refused(InputError, "text file")),
    *(row(f"{name} of YOLO in {code} without a mark", of_yolo("images", "labels", **{f"{name}_txt":
        "a.png\n".encode(code)}, **more), yolo(), refused(InputError, f"{name}.txt", "UTF-16", "UTF-8"))
        for code in ("utf-16-le", "utf-16-be", "utf-32-le") for name, more in (("classes", {}), ("list",
        {"data_yaml": "train: list.txt"}))),
    *(row(f"a missing folder of YOLO for {split}", of_yolo("images", "labels", data_yaml=text), yolo(),
        refused(InputError, split, missing, "in/none/images" if split == "train" else "in/")) for split,
        text, missing in (("train", "train: ../none/images\nval: images\n", "../none/images"), ("val",
        "train: images\n\nval: ../none\n", "../none"), ("test", "train: images\ntest:\n - images\n - x\n",
        "'x'"))),
    row("a text file of YOLO outside that is followed", {"in/a.png": 0, "in/a.txt": Link("../a.txt"),
        "a.txt": "0 0.5 0.5 1 1", "in/data.yaml": "train: .\nnames: [x]"}, yolo(follow_links=True),
        stored({"train": {"a.png": {"image": 0, "objects/bbox": np.array([[0.5, 0.5, 1, 1]], F32),
        "objects/category": ["x"]}}}, "x")),
]  # fmt: skip


# Faults of annotations as tools write them, each with its variations


def named(form, folder="in/images", **extra):
    """Return files of COCO whose names of images are changed, and the images below a folder."""
    content = document()
    for n, image in enumerate(content["images"]):
        image["file_name"] = form(image["file_name"], n)
    return of_coco("in/any.json", folder, content) | extra


BACKSLASHES = [
    row("COCO of Windows", named(lambda name, n: f"images\\{name}"), coco("in/any.json"),
        stored({"train": objects("images/")}, *NAMES)),
    row("COCO of Windows with a root", named(lambda name, n: f"images\\{name}", "elsewhere/images"),
        coco("in/any.json", root="elsewhere"), stored({"train": objects("images/")}, *NAMES)),
    row("COCO of Windows with deep folders", named(lambda name, n: f"a\\b c\\{name}", "in/images/a/b c"),
        coco("in/any.json"), stored({"train": objects("images/a/b c/")}, *NAMES)),
    row("COCO of Windows and of others", named(lambda name, n: f"images{'/' if n else chr(92)}{name}"),
        coco("in/any.json"), stored({"train": objects("images/")}, *NAMES)),
    row("COCO of Windows that is missing", {n: c for n, c in named(lambda name, n: f"images\\{name}").items()
        if "25" not in n}, coco("in/any.json", max_rejected="50%"), stored({"train": {n: v for n,
        v in objects("images/").items() if "25" not in n}}, *NAMES, rejected={"missing": 1})),
    *(row(f"COCO of accents {name}", named(lambda name, n, prefix=found: f"{prefix}{name}", "none") | {
        f"in/{there}{name}": n for n, name in enumerate(OBJECTS)}, coco("in/any.json"),
        stored({"train": objects(found)}, *NAMES)) for name, found, there in (("composed", "caf\xe9",
        "cafe\u0301"), ("apart", "cafe\u0301", "caf\xe9"))),
]  # fmt: skip
ONE = {"splits": {"a": 1}}
SPLITS_OF_FILES = [
    *(row(f"COCO of {name} is divided", of_coco(f"in/{file}", f"in/{folder}"), coco(**ONE),
        stored({"a": objects(f"{folder}/")}, *NAMES)) for name, file, folder in (
        ("CVAT", "annotations/instances_default.json", "images/default"),
        ("CVAT without folders", "annotations/instances_default.json", "images"),
        ("a year", "annotations/instances_2017.json", "images"),
        ("train alone", "annotations/instances_train2017.json", "train2017"),
        ("Roboflow's train", "train/_annotations.coco.json", "train"))),
    row("COCO of val alone", of_coco(INSTANCES.format("Val"), "in/Val"), coco(),
        stored({"val": objects("Val/")}, *NAMES)),
    row("COCO of a split that is not usual", of_coco(INSTANCES.format("default"), "in/default")
        | of_coco(INSTANCES.format("train"), "in/train"), coco(), refused(InputError,
        "instances_default.json", "tfshards merge")),
    row("YOLO of folders with capitals", both("images/{}", "labels/{}")
        | of_yolo("images/Test", "labels/Test"), yolo(),
        stored({**two("images/{}"), "test": boxed("images/Test")})),
    row("YOLO of valid and Train in data.yaml", of_yolo("a", "a", data_yaml="Train: a\nvalid: b\n")
        | of_yolo("b", "b"), yolo(), stored({"train": boxed("a"), "valid": boxed("b")})),
    row("YOLO of folders that are not all splits", both("images/{}", "labels/{}")
        | {"in/images/more/a.png": 1}, yolo(), refused(InputError, "in/images/more", "data.yaml")),
]  # fmt: skip


def twins_row(name, first, second, text="labels/b.txt", **others):
    """Return rows of two images that have one text file, next to another image."""
    files = {"in/images/ok.png": 0, "in/labels/ok.txt": LINES["a.png"], f"in/{text}": LINES["a.png"]}
    files |= {f"in/{first}": 1, f"in/{second}": 2}
    files |= {f"in/{file.replace('_', '.')}": content for file, content in others.items()}
    kept = {"images/ok.png": boxed("images")["images/a.png"]}
    return [
        row(f"YOLO of {name}", files, yolo(), refused(BuildError, "same text file")),
        row(
            f"YOLO of {name} that is allowed",
            files,
            yolo(max_rejected="70%"),
            stored({"train": kept}, rejected={"invalid annotation": 2}),
        ),
    ]


BOM = "\ufeff"
LIST_YAML = "train: list.txt\nnames: [person, car, dog]"
LISTED = stored({"train": boxed("images", NAMES)}, *NAMES)
PATHS = [f"./images/{name}" for name in LINES]
NONE = {"objects/bbox": np.zeros((0, 4), F32), "objects/category": np.array([], int)}
TWIN_LIST = "images/ok.png\nimages/b.jpg\nimages/b.png"
LISTS = {
    "a byte order mark": BOM + "\n".join(PATHS),
    "CRLF": "\r\n".join(PATHS),
    "a byte order mark and CRLF": BOM + "\r\n".join(PATHS),
    "empty lines": "\n\n".join(["", *PATHS, ""]),
    "backslashes": "\n".join(PATHS).replace("/", "\\"),
}
WITH_NAMES = "\n".join(NAMES)
TEXTS = [
    *twins_row("two suffixes", "images/b.jpg", "images/b.png"),
    *twins_row("two cases of a suffix", "images/b.png", "images/b.PNG"),
    *twins_row("two suffixes next to their text", "images/b.bmp", "images/b.png", "images/b.txt"),
    *twins_row("two suffixes in a list", "images/b.jpg", "images/b.png", list_txt=TWIN_LIST,
        data_yaml="train: list.txt"),
    row("YOLO of two suffixes without text",
        of_yolo("images", "labels") | {"in/images/z.png": 8, "in/images/z.PNG": 9}, yolo(),
        stored({"train": boxed("images") | {"images/z.png": {"image": 8, **NONE},
        "images/z.PNG": {"image": 9, **NONE}}}, warns=("2 images without",))),
    *(row(f"a list of YOLO with {name}", of_yolo("images", "labels", list_txt=text, data_yaml=LIST_YAML),
        yolo(), LISTED) for name, text in LISTS.items()),
    row("a list of YOLO in UTF-16", of_yolo("images", "labels", list_txt="\n".join(PATHS).encode("utf-16"),
        data_yaml=LIST_YAML), yolo(), refused(InputError, "list.txt", "UTF-16")),
    row("YOLO with a byte order mark in names", of_yolo("images", "labels", classes_txt=BOM + WITH_NAMES),
        yolo(), LISTED),
    row("YOLO with a byte order mark in boxes", of_yolo("images", "labels", classes_txt=WITH_NAMES)
        | {"in/labels/a.txt": BOM + LINES["a.png"]}, yolo(), LISTED),
    row("YOLO with a byte order mark in data.yaml", of_yolo("images", "labels", data_yaml=BOM +
        "train: images\nnames: [person, car, dog]"), yolo(), LISTED),
]  # fmt: skip
COMPOSED, APART = "caf\xe9", "cafe\u0301"


def accented(image, text, also=()):
    """Return files of an image and of its text file, perhaps another, with their accents, and the example."""
    files = {f"in/images/{image}.png": 0, "in/images/b.png": 1} | {
        f"in/labels/{name}.txt": "" for name in also
    }
    files |= {f"in/labels/{text}.txt": LINES["a.png"], "in/labels/b.txt": ""}
    return files, boxed("images", lines={f"{image}.png": LINES["a.png"], "b.png": ""})


def accents(name, image, text, **more):
    files, examples = accented(image, text, **more)
    return row(f"YOLO of macOS {name}", files, yolo(), stored({"train": examples}))


UNICODE = [
    accents("with images apart", APART, COMPOSED),
    accents("with text files apart", COMPOSED, APART),
    accents("with a folder apart", f"{APART}/1", f"{COMPOSED}/1"),
    accents("with both forms", APART, APART, also=[COMPOSED]),
    row("YOLO of macOS with a list", {"in/images/x.png": 1} | accented(APART, COMPOSED)[0]
        | {"in/list.txt": f"images/{COMPOSED}.png", "in/data.yaml": "train: list.txt"}, yolo(),
        stored({"train": {f"images/{COMPOSED}.png": boxed("images", lines={"a.png": LINES["a.png"]})[
        "images/a.png"]}}, warns=("b.txt",))),
    row("YOLO of macOS whose two images have one text file", {f"in/images/{APART}.png": 0,
        f"in/images/{COMPOSED}.png": 1, f"in/labels/{COMPOSED}.txt": LINES["a.png"]}, yolo(),
        refused(BuildError, "same text file")),
]  # fmt: skip


def described(text, lines="", **more):
    """Return a YOLO with a data.yaml and the text file of one image, and the call."""
    return {"in/a.png": 0, "in/a.txt": lines, "in/data.yaml": text}, yolo(**more)


# as Roboflow makes it
LONG_NAME = f"2007_000027_jpg.rf.{'0123456789abcdef' * 2}_{'x' * 30}"
THREE_POINTS = "0 .5 .5 .5 .5" + " .5 .5 2" * 3
MISTAKES = [
    *(row(f"numbers of names in data.yaml {name}", *described(f"train: .\nnames: {{{text}}}"),
        refused(InputError, "data.yaml", "names", *words)) for name, text, words in (
        ("from 1", "1: a, 2: b", ("'1', '2'", "from 0 to 1")),
        ("with a gap", "0: a, 2: b", ("'0', '2'", "from 0")), ("in words", "a: 0", ("from 0",)),
        ("with a zero", "00: a", ("from 0",)))),
    row("numbers of names in data.yaml in another order", *described("train: .\nnames: {1: b, 0: a}",
        "1 .5 .5 1 1"), stored({"train": {"a.png": {"image": 0, "objects/bbox": np.array([[0.5, 0.5, 1, 1]],
        F32), "objects/category": ["b"]}}}, "a", "b")),
    *(row(f"the key {key} of data.yaml alone", *described(f"{key}: .\nnames: [a]"), refused(InputError,
        "data.yaml", f"'{key}'", "path, train, val")) for key in ("trian", "images")),
    *(row(f"the key {key} of data.yaml next to val", *described(f"{key}: .\nval: .\nnames: [x]\nnc: 1",
        "0 .5 .5 1 1"), stored({"val": {"a.png": {"image": 0, "objects/bbox": np.array([[0.5, 0.5, 1, 1]],
        F32), "objects/category": ["x"]}}}, "x", warns=(f"'{key}'; the usual keys are path, train",)))
        for key in ("trian", "name")),
    *(row(f"a line of YOLO with {name}", *described("train: .\nnames: [x, y]", f"1 .5 .5 1 1\n{line}"),
        refused(BuildError, "a.txt:2", *words)) for name, line, words in (
        ("a name of a class", "cat .5 .5 1 1", ("'cat'", "number")),
        ("decimal commas", "1 0,5 0,5 0,25 0,25", ("'0,5'", "0.5")),
        ("a long word", f"1 {'x' * 5000}", ("'xxx", "number")),
        ("a confidence", "1 .5 .5 1 1 .9", ("5 numbers", "confidence")),
        ("a confidence of 1", "1 .5 .5 1 1 1", ("5 numbers", "confidence")))),
    row("a line of YOLO in a file of a long name", {f"in/images/{LONG_NAME}.png": 0,
        f"in/labels/{LONG_NAME}.txt": "0 .5 .5 1 1 .9"}, yolo(), refused(BuildError,
        f"labels/{LONG_NAME}.txt:1", "confidence")),
    row("a line of YOLO with a confidence and segmentations", *described("train: .", "1 .5 .5 1 1 .9",
        segmentations=True), refused(BuildError, "a.txt:1", "confidence")),
    *(row(f"keypoints of YOLO with the shape {shape}", *described(f"train: .\nkpt_shape: {shape}",
        THREE_POINTS), refused(BuildError, "a.txt:1", "13 numbers", f"kpt_shape {shape}"))
        for shape in ("[4, 3]", "[3, 2]")),
]  # fmt: skip
# 100 x 50 pixels, of which the tolerance is 1 pixel
BROAD = np.zeros((50, 100, 3), np.uint8)
# numbers of YOLO beyond the image, and what is left of them in it
BEYOND = {
    "is too wide": ("0.5 0.5 1.0371 0.5", (0.5, 0.5, 1, 0.5)),
    "is too high": ("0.5 0.5 0.5 1.5", (0.5, 0.5, 0.5, 1)),
    "has a negative center": ("-0.125 0.5 0.5 0.5", (0.0625, 0.5, 0.125, 0.5)),
    "has a center beyond 1": ("1.125 0.5 0.5 0.5", (0.9375, 0.5, 0.125, 0.5)),
    "has a corner beyond 1": ("0.9375 0.5 0.25 0.5", (0.90625, 0.5, 0.1875, 0.5)),
    "lies outside": ("2.5 0.5 0.5 0.5", None),
    "is in pixels": ("120 30 40 20", None),
}  # fmt: skip


def beyond(text, **given):
    return {"in/a.png": BROAD, "in/a.txt": f"0 {text}"}, yolo(**given)


def broad(box, **more):
    return stored({"train": {"a.png": {"image": BROAD, "objects/bbox": np.array([box], F32),
                  "objects/category": np.array([0])}}}, **more)  # fmt: skip


OUTSIDE = [
    *(row(f"a box of YOLO that {name}", *beyond(text), refused(BuildError, "box outside"))
        for name, (text, _) in BEYOND.items()),
    *(row(f"a box of YOLO that {name} and is kept", *beyond(text, outside_boxes="keep"),
        broad([float(word) for word in text.split()])) for name, (text, _) in BEYOND.items()),
    *(row(f"a box of YOLO that {name} and is clipped", *beyond(text, outside_boxes="clip"), broad(box,
        conversions={"boxes clipped": 1}) if box else refused(BuildError)) for name, (text,
        box) in BEYOND.items()),
    *(row(f"a box of YOLO of negative width, {outside}", *beyond("0.5 0.5 -0.25 0.5", outside_boxes=outside),
        refused(BuildError, "box outside")) for outside in ("reject", "clip", "keep")),
    row("a box of YOLO that is rounded", *beyond("0.5 0.5 1.005 1.01"), broad((0.5, 0.5, 1.005, 1.01))),
    row("a polygon of YOLO outside", *beyond("0.5 0.5 1.25 0.5 0.75 0.75", segmentations=True),
        refused(BuildError, "box outside")),
]  # fmt: skip
LONG = "x" * 5000
COLUMNS = [
    row("names of COCO that begin like an image", named(lambda name, n: f"GIF89a{name}", "none")
        | {f"in/GIF89a{name}": n for n, name in enumerate(OBJECTS)}, coco("in/any.json"),
        stored({"train": objects("GIF89a")}, *NAMES)),
    row("an image of YOLO whose name is not UTF-8", {"in/caf\udce9.png": 0, "in/b.png": 1,
        "in/caf\udce9.txt": LINES["a.png"]}, yolo(), stored({"train": {"caf\udce9.png": boxed("")["a.png"],
        "b.png": {"image": 1, **NONE}}})),
    row("an image of COCO with a long name", named(lambda name, n: name if n else f"{LONG}/{name}", "in"),
        coco("in/any.json", max_rejected="50%"), stored({"train": dict([*objects().items()][1:])}, *NAMES,
        rejected={"missing": 1})),
    row("a long image in a list of YOLO", of_yolo("images", "labels", list_txt="\n".join([*PATHS, LONG]),
        data_yaml=LIST_YAML), yolo(max_rejected="50%"), stored({"train": boxed("images", NAMES)}, *NAMES,
        rejected={"missing": 1})),
    row("a long text in data.yaml", of_yolo("images", "labels", data_yaml=f"about: {LONG}\ntrain: images\n"
        "names: [person, car, dog]"), yolo(), LISTED),
    row("a long folder in data.yaml", of_yolo("images", "labels", data_yaml=f"train: {LONG}\n"), yolo(),
        refused(InputError, "data.yaml")),
    row("a column of COCO that is another", of_coco("in/any.json", "in"), coco("in/any.json",
        {"objects/areas": "drop"}), refused(InputError, "objects/area")),
    row("all objects of COCO dropped whose images are text", of_coco("in/any.json", "in",
        faulty(image_id="7")), coco("in/any.json", {"objects": "drop"}), stored({"train": {name: {feature:
        values[feature] for feature in ("image", "image_id")} for name, values in objects().items()}})),
    row("all objects of COCO dropped", of_coco("in/any.json", "in", faulty(bbox=5)), coco("in/any.json",
        {"objects": "drop"}), stored({"train": {name: {feature: values[feature] for feature in ("image",
        "image_id")} for name, values in objects().items()}})),
    row("a column of YOLO dropped", of_yolo(".", "."), yolo(roles={"objects/category": "drop"}),
        stored({"train": {name: {feature: value for feature, value in values.items() if feature !=
        "objects/category"} for name, values in boxed("").items()}})),
    *(row(f"{call.__name__} in a bucket", {}, call("s3://bucket/in"), refused(OptionsError, "s3://"))
        for call in (coco, yolo)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "call", "expected"),
    [
        *BOX_ROWS,
        *EDGES,
        *POSES,
        *COCO,
        *YOLO,
        *COCO_FAULTS,
        *COCO_REFUSALS,
        *YOLO_FAULTS,
        *YOLO_REFUSALS,
        *NUMBERS,
        *LAYOUTS,
        *BACKSLASHES,
        *SPLITS_OF_FILES,
        *TEXTS,
        *UNICODE,
        *MISTAKES,
        *OUTSIDE,
        *COLUMNS,
    ],
)
def test_annotations_move_with_their_image_or_are_refused(files, call, expected):
    check(files, call, expected)
