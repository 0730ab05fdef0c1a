"""Numbers of classes with names of their own mean the same class in every file and dataset."""

import json
from pathlib import Path

import pytest

from tests.conformance.inputs import write
from tests.errors import raises
from tests.prep.table_files import examples
from tfshards.prep import Coco, Yolo, append, verify
from tfshards.schemas import InputError, read_manifest


def classes(out: Path, feature: str) -> dict[str, list[str | None]]:
    """Return the class names of each example by the last part of its key; None is no class."""
    names = [*read_manifest(out).schema.class_names, None]
    return {Path(key).name: [names[n] for n in values[feature]] for key, values in examples(out).items()}


def coco(root: Path, names: list[str], images: dict[str, list[int]]) -> Path:
    document = {
        "images": [{"id": n, "file_name": name} for n, name in enumerate(images)],
        "annotations": [
            {"image_id": n, "category_id": each + 1, "bbox": [0, 0, 1, 1]}
            for n, found in enumerate(images.values())
            for each in found
        ],
        "categories": [{"id": number, "name": name} for number, name in enumerate(names, 1)],
    }
    write({"instances.json": document, **{name: number for number, name in enumerate(images)}}, root)
    return root / "instances.json"


def yolo(root: Path, names: list[str], images: dict[str, list[int]]) -> Path:
    write({"data.yaml": f"train: .\nnames: {json.dumps(names)}\n"}, root)
    for number, (name, found) in enumerate(images.items()):
        lines = "".join(f"{each} .5 .5 .5 .5\n" for each in found)
        write({name: number, f"{name[:-4]}.txt": lines}, root)
    return root


@pytest.mark.parametrize(("kind", "made"), [(Coco, coco), (Yolo, yolo)])
def test_appended_annotations_are_translated_by_name(kind, made, quiet_build, tmp_path):
    out = tmp_path / "out"
    quiet_build(kind(made(tmp_path / "a", ["cat", "dog"], {"a.png": [0, 1]})), out)
    other = made(tmp_path / "b", ["dog", "cat"], {"b.png": [0, 1, 0]})
    append([str(other), str(tmp_path / "b")], out)
    assert classes(out, "objects/category") == {"a.png": ["cat", "dog"], "b.png": ["dog", "cat", "dog"]}
    third = [str(made(tmp_path / "c", ["cat", "bird", "dog"], {"c.png": [1, 2]})), str(tmp_path / "c")]
    with raises(InputError, "class names lack", "'bird'", code="classes-new"):
        append(third, out)
    append(third, out, new_classes=True)
    assert read_manifest(out).schema.class_names == ("cat", "dog", "bird")
    assert classes(out, "objects/category")["c.png"] == ["bird", "dog"]
    assert verify(out, deep=True)
