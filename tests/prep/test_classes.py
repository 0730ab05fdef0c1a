"""The label map: taken from a file or a dataset, otherwise sorted, and the same in appended annotations."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conformance.inputs import write
from tests.errors import raises
from tests.prep.table_files import examples, write_parquet
from tests.surface.command import main
from tfshards.prep import Arrays, Coco, Options, Table, Yolo, append, verify
from tfshards.schemas import InputError, read_manifest

HOSTILE = [
    "\ufeffcat",
    "\\n",
    "ends in \\",
    "\x85",
    "\u2028",
    "a\nb",
    "\U0010ffff",
    "\u202egnp.",
    " a ",
    "猫",
]


def build_with(table, out, *flags):
    return main(["build", "table", str(table), str(out), "--name=data", "--quiet", *flags])


def test_the_map_of_a_dataset_and_its_labels_txt_give_the_same_dataset(tmp_path, quiet_build, capsys):
    labels = [name.encode() for name in HOSTILE] + [b"caf\xe9"]
    path = write_parquet(tmp_path / "t.parquet", {"label": labels})
    names = (*HOSTILE, "caf\udce9")
    first = quiet_build(Table(path, class_names=names), tmp_path / "1", options=Options(name="data"))
    assert first.schema.class_names == names
    assert build_with(path, tmp_path / "2", f"--class-names={tmp_path}/1/{first.folder}/labels.txt") == 0
    assert build_with(path, tmp_path / "3", f"--class-names={tmp_path}/1") == 0
    assert read_manifest(tmp_path / "2") == read_manifest(tmp_path / "3") == first
    quiet_build(Arrays({"label": np.arange(4)}), tmp_path / "numbers")
    assert build_with(path, tmp_path / "4", f"--class-names={tmp_path}/numbers") == 1
    assert "numbers" in capsys.readouterr().err


# the text, and the number of the line that is at fault
FAULTY = {
    "nothing": (b"", 1),
    "an empty line": (b"cat\n\ndog\n", 2),
    "a name twice": (b"cat\ndog\ncat\n", 3),
    "a lone backslash": (b"a\nb\\\n", 2),
    "an escape that is none": (b"a\\d\n", 1),
    "an escape of Python that labels.txt has not": (b"\\N{BULLET}\n", 1),
    "no UTF-8": (b"caf\xe9\n", 3),
}


@pytest.mark.parametrize(("text", "number"), FAULTY.values(), ids=FAULTY)
def test_a_faulty_line_is_named(text, number, tmp_path, capsys):
    (tmp_path / "map.txt").write_bytes(text)
    path = write_parquet(tmp_path / "t.parquet", {"label": ["cat"]})
    assert build_with(path, tmp_path / "out", f"--class-names={tmp_path}/map.txt") == 1
    message = capsys.readouterr().err.partition("map.txt")[2]
    assert str(number) in message
    assert not (tmp_path / "out").exists()


# Numbers of classes with names of their own mean the same class in every file and dataset


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
