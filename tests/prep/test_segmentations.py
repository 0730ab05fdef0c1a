"""Keypoints and segmentations of COCO and YOLO keep their geometry, and what is left out is counted."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tests.prep.table_files import check_repair, encoded, examples
from tfshards import loader
from tfshards.prep import ColumnRoles, ImageOptions, Options, Table
from tfshards.prep.cli.main import main
from tfshards.schemas import Feature, InputError, OptionsError

RLE = {"counts": [10, 3, 35], "size": [6, 8]}
# centers of pixels, of which the colors are all different
CENTERS = [[1.5, 2.5], [4.5, 0.5], [6.5, 5.5]]
ANNOTATIONS = [
    {
        "bbox": [1, 0, 6, 6],
        "segmentation": [[1.5, 2.5, 4.5, 0.5, 6.5, 5.5]],
        "keypoints": [1.5, 2.5, 2, 0, 0, 0],
        "num_keypoints": 1,
    },
    {"bbox": [0, 0, 2, 2], "segmentation": RLE, "iscrowd": 1},
    {
        "bbox": [0, 0, 8, 6],
        "segmentation": [[1, 1, 2, 1, 2, 2], [4, 4, 6, 4, 6, 5, 4, 5]],
        "keypoints": [4.5, 0.5, 1, 6.5, 5.5, 2],
    },
]


def write_coco(root, name: str = "annotations/instances_val2017.json", orientation: int = 1):
    """Write two images of 8 x 6 pixels, the second without annotations, and return the file."""
    folder, path = root / "val2017", root / name
    for each in (folder, path.parent):
        each.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = np.arange(144, dtype=np.uint8).reshape(6, 8, 3)
    Image.fromarray(pixels).save(folder / "a.png", exif=exif)
    (folder / "b.png").write_bytes(encoded(1))
    document = {
        "images": [
            {"id": number, "file_name": name, "width": 8, "height": 6, "license": 4}
            for number, name in enumerate(("a.png", "b.png"))
        ],
        "annotations": [{"id": n, "image_id": 0, "category_id": 1, **e} for n, e in enumerate(ANNOTATIONS)],
        "categories": [{"id": 1, "name": "person", "keypoints": ["left", "right"]}],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("orientation", [1, 6, 7])
def test_keypoints_and_polygons_of_coco_stay_on_their_pixels(orientation, build_table, tmp_path, log):
    path = write_coco(tmp_path, "person_keypoints_val2017.json", orientation)
    polygons = ColumnRoles(segmentations="polygons")
    manifest = build_table(path, form="coco", columns=polygons)
    assert list(manifest.splits) == ["val"]
    schema = manifest.schema
    assert schema["objects/keypoints"] == Feature("objects/keypoints", "float", "float32", (None, 6), "xyv")
    assert schema["polygons/points"] == Feature("polygons/points", "float", "float32", (None, 2), "xy")
    values = examples(tmp_path / "out")["a.png"]
    assert values["polygons/lengths"] == [3, 3, 4]
    assert values["polygons/object"] == [0, 2, 2]
    assert values["objects/index"] == [0, 1, 2]
    points = np.reshape(values["polygons/points"], (-1, 2))
    keypoints = np.reshape(values["objects/keypoints"], (3, 2, 3))
    assert keypoints[..., 2].tolist() == [[2, 0], [0, 0], [1, 2]]
    # points without a label stay as they are
    assert not keypoints[keypoints[..., 2] == 0].any()
    stored = np.asarray(Image.open(io.BytesIO(values["image"][0])))
    file = np.arange(144).reshape(6, 8, 3)
    labeled = keypoints[keypoints[..., 2] > 0][:, :2]
    for (x, y), (left, top) in zip(np.concatenate([points[:3], labeled]), [*CENTERS, *CENTERS], strict=True):
        assert stored[int(y), int(x)].tolist() == file[int(top), int(left)].tolist()
    assert manifest.totals.conversions.get("keypoints turned", 0) == (orientation > 1)
    text = "\n".join(log)
    assert "1 object, such as one in 'a.png', without keypoints" in text
    assert "1 object, such as one in 'a.png', without polygons" in text
    assert "1 image without annotations" in text
    assert "1 crowd region" in text
    assert "annotations.id (3), annotations.num_keypoints (1), images.license (2)" in text


@pytest.mark.processes
def test_polygons_are_resized_and_flipped_with_their_image_and_repaired(tmp_path):
    source, out = write_coco(tmp_path), tmp_path / "out"
    build = ["build", "table", str(source), str(out), "--from", "coco", "--segmentations", "polygons"]
    assert main([*build, "--resize", "12x16"]) == 0
    polygons = ANNOTATIONS[0]["segmentation"] + ANNOTATIONS[2]["segmentation"]
    points = np.concatenate(polygons).reshape(-1, 2)
    found = set()
    for seed in range(8):
        image = loader.Image(size=(6, 8), flip="horizontal", seed=seed)
        moving = loader.Keypoints("polygons/points", flip_pairs=())
        for batch in loader.load(out, batch_size=2, image=image, keypoints=moving):
            for moved in filter(None, batch["polygons/points"].to_list()):
                is_flipped = moved != points.tolist()
                assert np.allclose(moved, [[8 - x, y] for x, y in points] if is_flipped else points)
                found.add(is_flipped)
    assert found == {False, True}
    check_repair(out, source, split="val")


def test_segmentations_as_text_are_kept_or_refused_with_an_image_that_changes(build_table, tmp_path, log):
    text, path = ColumnRoles(segmentations="text"), write_coco(tmp_path)
    build_table(path, form="coco", columns=text)
    found = examples(tmp_path / "out")["a.png"]["objects/segmentation"]
    assert [json.loads(each) for each in found] == [each["segmentation"] for each in ANNOTATIONS]
    with raises(InputError, "segmentations-resized", name="objects/segmentation"):
        build_table(path, "small", form="coco", columns=text, images=ImageOptions(resize="3x4"))
    write_coco(tmp_path / "turned", orientation=6)
    source = tmp_path / "turned" / "annotations" / "instances_val2017.json"
    lenient = {"options": Options(max_rejected=1)}
    manifest = build_table(source, "rejected", build=lenient, form="coco", columns=text)
    assert manifest.totals.reasons["rejected"] == {"boxes do not fit": 1}
    assert any("text, which cannot be turned" in line for line in log), log
    with raises(OptionsError, "segmentations-form", form="yolo"):
        Table(path, form="yolo", columns=text)


def test_a_folder_of_coco_reads_one_kind_of_files_and_names_the_others(build_table, tmp_path, log):
    write_coco(tmp_path / "coco")
    write_coco(tmp_path / "coco", "annotations/person_keypoints_val2017.json")
    (tmp_path / "coco" / "annotations" / "captions_val2017.json").write_text("{}")
    manifest = build_table(tmp_path / "coco", form="coco", columns=ColumnRoles(drop=("objects/keypoints",)))
    assert list(manifest.splits) == ["val"]
    assert "objects/keypoints" not in manifest.schema.names
    assert any("captions_val2017.json, person_keypoints_val2017.json; each can" in line for line in log)
    assert any("annotations.segmentation (3)" in line and "keeps segmentation" in line for line in log)


@pytest.mark.parametrize(("name", "split"), [("test", "test"), ("train2017", "train"), ("custom", "train")])
def test_the_name_of_one_file_is_its_split_if_it_is_that_of_a_split(name, split, build_table, tmp_path):
    path = write_coco(tmp_path / "coco", f"instances_{name}.json")
    manifest = build_table(path, form="coco", root=tmp_path / "coco" / "val2017")
    assert list(manifest.splits) == [split]
    if split == "train":
        parts = {"options": Options(splits={"train": 0.5, "val": 0.5})}
        divided = build_table(path, "two", build=parts, form="coco", root=tmp_path / "coco" / "val2017")
        assert list(divided.splits) == ["train", "val"]


def write_yolo(root, line: str, config: str = ""):
    root.mkdir(exist_ok=True)
    (root / "a.png").write_bytes(encoded(3))
    (root / "a.txt").write_text(line)
    (root / "data.yaml").write_text(f"train: .\nnames: [x, y]\n{config}")
    return root


def test_keypoints_of_yolo_are_kept(build_table, tmp_path):
    line = "1 0.5 0.5 0.5 0.25 0.25 0.125 2 0.75 0.5 1 0 0 0\n0 0.5 0.5 1 1 0 0 0 0 0 0 1 1 2"
    root = write_yolo(tmp_path / "pose", line, "kpt_shape: [3, 3]")
    manifest = build_table(root, form="yolo", images=ImageOptions(resize="12x16"))
    name = "objects/keypoints"
    assert manifest.schema[name] == Feature(name, "float", "float32", (None, 9), "xyv-normalized")
    values = examples(tmp_path / "out")["a.png"]
    rows = [[float(word) for word in each.split()] for each in line.splitlines()]
    assert values[name] == [number for row in rows for number in row[5:]]
    assert values["objects/bbox"] == [number for row in rows for number in row[1:5]]
    assert values["objects/category"] == [1, 0]
    root = write_yolo(tmp_path / "plane", "1 0.5 0.5 0.5 0.25 0.25 0.125", "kpt_shape: [1, 2]")
    assert build_table(root, "two", form="yolo").schema[name].coordinates == "xy-normalized"
    with raises(InputError, "yolo-pose-polygons"):
        build_table(root, "three", form="yolo", columns=ColumnRoles(segmentations="polygons"))
    for wrong, code in (
        ("1 0.5 0.5 0.5 0.25", "yolo-box-values"),
        ("1 0.5 0.5 0.5 0.25 2 0.5", "yolo-box-range"),
    ):
        (root / "a.txt").write_text(wrong)
        with raises(InputError, code):
            build_table(root, "four", form="yolo")


def test_polygons_of_yolo_are_kept_with_the_box_around_them(build_table, tmp_path, log):
    root = write_yolo(tmp_path / "shapes", "1 0.25 0.125 0.75 0.125 0.5 0.625\n0 0.5 0.5 0.25 0.25")
    build_table(root, form="yolo", columns=ColumnRoles(segmentations="polygons"))
    values = examples(tmp_path / "out")["a.png"]
    assert values["polygons/points"] == [0.25, 0.125, 0.75, 0.125, 0.5, 0.625]
    assert values["polygons/lengths"] == [3]
    assert values["polygons/object"] == [0]
    assert values["objects/bbox"] == [0.5, 0.375, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert any("1 object, such as one in 'a.png', without polygons" in line for line in log)
    with raises(InputError, "yolo-box-values", num_words=7):
        build_table(root, "boxes", form="yolo")
