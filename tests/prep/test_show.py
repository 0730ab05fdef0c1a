"""Find an example by its key or its position, and describe its values."""

import numpy as np

from tests.format_reader import companion, read
from tests.prep.exported import write_dataset
from tests.surface.command import refused, run
from tfshards import loader
from tfshards.prep import Arrays, ImageFolder, Options
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
