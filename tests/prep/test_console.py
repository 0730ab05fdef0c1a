"""What a command prints as JSON, limits of jobs, and paths with a tilde."""

from pathlib import Path

import numpy as np

from tests.surface.command import run_json
from tfshards.prep import Arrays, ImageFolder, build


def test_examples_as_json_have_numbers_text_and_what_images_are(small_folder, monkeypatch):
    monkeypatch.chdir(small_folder.parent)
    arrays = {
        "a": np.arange(4, dtype=np.float32).reshape(2, 2),
        "c": np.array([1j, 2j]),
        "n": np.array([7, 8]),
        "text": np.array(["ä", "b"]),
        "label": np.array([1, 0]),
    }
    build(Arrays(arrays), "arrays")
    build(ImageFolder("photos"), "out", shards=2)
    examples = run_json("show arrays --first 2")[1]
    assert {one["features"]["key"]: one["features"] for one in examples}["0"] == {
        "a": [0.0, 1.0],
        "c": {"dtype": "complex128", "hex": np.array([1j]).tobytes().hex()},
        "n": 7,
        "text": "ä",
        "label": 1,
        "key": "0",
    }
    (image,) = run_json("show out cat/00.png")[1]
    assert image["features"]["label"] == {"labels": [0], "classes": ["cat"]}
    assert image["features"]["image"]["num_bytes"] == Path("photos/cat/00.png").stat().st_size
    assert image["features"]["image"]["image"].startswith("PNG ")
