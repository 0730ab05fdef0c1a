"""Find an example by its key or its position, describe its values, and name examples in files of keys."""

import json
import os

import numpy as np
import pytest

from tests.format_reader import read
from tests.prep.exported import write_dataset
from tests.surface.command import refused, run, run_json
from tfshards import loader
from tfshards.prep import Arrays, ImageFolder, Options, build
from tfshards.schemas import Feature, Schema


def shown(*words: object) -> list[str]:
    ended = run(["show", *map(str, words)])
    assert ended.status == 0, ended
    return ended.out.splitlines()


def test_examples_are_found_by_key_and_by_their_position_in_the_order_of_the_loader(
    small_folder, tmp_path, quiet_build, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    quiet_build(ImageFolder(small_folder), out, shards=3, options=Options(splits={"train": 0.6, "val": 0.4}))
    for split in ("train", "val"):
        loaded = loader.load(out, split, batch_size=1)
        keys = [batch["key"][0].decode() for batch in loaded.as_numpy_iterator()]
        assert keys == [*read(out)[split]]
        for number, key in enumerate(keys):
            text = shown(out, key)
            assert text[0].startswith(f"split {split}, example {number}, record ")
            assert text[-1] == f"key: {key}"
            assert shown(out, f"{split}:{number}") == text
    texts = {"3": "train:0", f"val:{len(keys)}": f"{len(keys)} examples", "x:3": "'x:3'"}
    for place, text in texts.items():
        refused(["show", str(out), place], text, status=1)


# What a command prints as JSON, limits of jobs, and paths with a tilde


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
        "c": "complex128 []: 1j",
        "n": 7,
        "text": "ä",
        "label": 1,
        "key": "0",
    }
    (image,) = run_json("show out cat/00.png")[1]
    assert image["features"]["label"] == 0
    assert image["features"]["image"].startswith("PNG ")


# Files of keys, as a verb writes them or people do by hand


SCHEMA = Schema((Feature("key", "bytes", "bytes"),))


KEYS = [b"cat/1.png", b" dog/ 2.png ", b"two\nlines", b'it\'s "so"', b"\xff.png", b'"', b"\xc3\xa4", b"kept"]


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (b"\xef\xbb\xbfcat/1.png\r\n\r\n\n dog/ 2.png \r\n", KEYS[:2]),
        (b'"two\\nlines"\nit\'s "so"\n', KEYS[2:4]),
        # as audit writes all keys
        (
            "".join(json.dumps(key.decode("utf-8", "surrogateescape")) + "\n" for key in KEYS[:-1]).encode(),
            KEYS[:-1],
        ),
    ],
)
def test_plain_lines_and_json_strings_are_keys(tmp_path, content, keys):
    write_dataset(tmp_path / "d", SCHEMA, {"train": [[{"key": key} for key in KEYS]]})
    (tmp_path / "keys").write_bytes(content)
    ended = run(["remove", str(tmp_path / "d"), "--keys", str(tmp_path / "keys")])
    assert ended.status == 0, ended
    assert {*read(tmp_path / "d")["train"]} == {os.fsdecode(key) for key in KEYS if key not in keys}
