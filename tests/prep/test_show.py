"""Find an example by its key or its position, describe its values, and name examples in files of keys."""

import json
import os

import numpy as np
import pytest

from tests.format_reader import companion, read
from tests.prep.exported import write_dataset
from tests.surface.command import refused, run, run_json
from tfshards import loader
from tfshards.prep import Arrays, ImageFolder, Options, build
from tfshards.schemas import Feature, Schema, read_manifest


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


def test_only_the_record_of_the_example_is_read(tmp_path, quiet_build, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quiet_build(Arrays({"x": np.arange(50) * 7}), tmp_path / "out", seed=5)
    (key, values) = [*read(tmp_path / "out")["train"].items()][30]
    (shard,) = read_manifest(tmp_path / "out").shards
    offset, length = map(int, (tmp_path / "out" / companion(shard.path, "idx")).read_text().split()[60:62])
    data = (tmp_path / "out" / shard.path).read_bytes()
    kept = data[offset : offset + length]
    damaged = bytes(offset) + kept + bytes(len(data) - offset - length)
    (tmp_path / "out" / shard.path).write_bytes(damaged)
    for place in (key, "train:30"):
        assert shown(tmp_path / "out", place)[1:] == [f"x: int64 []: {values['x']}", f"key: {key}"]
    other = next(each for each in read_keys(tmp_path / "out" / companion(shard.path, "keys")) if each != key)
    refused(["show", str(tmp_path / "out"), other], shard.path, status=1, code="record-damaged")
    (tmp_path / "out" / companion(shard.path, "keys")).unlink()
    refused(["show", str(tmp_path / "out"), key], companion(shard.path, "keys"), status=1, code="format")


def read_keys(path):
    return path.read_bytes().decode().split("\0")


def test_every_kind_of_value_is_described_in_one_line(tmp_path):
    values = {
        "few": (Feature("few", "float", "float16", (2,)), [0.5, -1.5], "0.5, -1.5"),
        "truth": (Feature("truth", "raw", "bool"), b"\1", "True"),
        "complex": (Feature("complex", "raw", "complex128"), np.complex128(1 + 2j).tobytes(), "(1+2j)"),
        "text": (Feature("text", "bytes", "bytes", (2,)), [b"a\n", b"b\\"], r"a\n, b\\"),
        "many": (Feature("many", "int", "int64", (100,)), [*range(100)], "6, 7, … (100 in all)"),
        "none": (Feature("none", "label", "int64", (None,)), [], "none"),
        "tags": (Feature("tags", "label", "int64", (None,)), [1, 0], "1 (dog), 0 (cat)"),
        "long": (Feature("long", "bytes", "bytes"), b"a" * 150 + b"\n" + b"b" * 5000, "… (5.0 KiB in all)"),
        "key": (Feature("key", "bytes", "bytes"), b"caf\xe9\x1b", r"caf\udce9\x1b"),
    }
    schema = Schema(tuple(feature for feature, *_ in values.values()), ("cat", "dog"))
    write_dataset(tmp_path, schema, {"train": [[{name: value for name, (_, value, _) in values.items()}]]})
    lines = shown(tmp_path, "caf\udce9\x1b")[1:]
    assert len(lines) == len(values)
    for line, (name, (*_, text)) in zip(lines, values.items(), strict=True):
        assert line.startswith(f"{name}: ")
        assert line.endswith(text)
        assert len(line) < 300


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


@pytest.mark.parametrize("line", [b'"a" and b', b'"\\ud800"'])
def test_a_line_with_a_quotation_mark_that_is_no_json_string_is_an_error(tmp_path, line, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_dataset(tmp_path / "d", SCHEMA, {"train": [[{"key": b"a"}]]})
    (tmp_path / "keys").write_bytes(b"a\n" + line)
    refused(["remove", "d", "--keys", "keys"], "2", status=1, code="input")
