"""The reader in tests/format_reader.py reads what tfshards writes, and the example of docs/format.md."""

import re
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.format_reader import crc32c, read_dataset
from tfshards.prep import verify
from tfshards.schemas import read_manifest

PAGE = Path(__file__).parents[1] / "docs" / "format.md"


def code_block(language):
    return re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)[1]


def write_the_page_s_example(root):
    """Write the example as the page shows it; return its one shard."""
    (root / "dataset.json").write_text(code_block("json"), encoding="ascii")
    shard = root / read_manifest(root).shards[0].path
    (shard.parent / "index").mkdir(parents=True)
    (shard.parent / "dataset.json").write_text(code_block("json"), encoding="ascii")
    (shard.parent / "build.json").write_text(code_block("record"), encoding="ascii")
    # remarks follow the columns of hex after three or more spaces
    columns = (re.match(r" *((?:[0-9a-f]{2} )+)", line) for line in code_block("hex").splitlines())
    shard.write_bytes(bytes.fromhex("".join(column[1] for column in columns)))
    (shard.parent / "index" / f"{shard.name}.idx").write_text(code_block("text"), encoding="ascii")
    (shard.parent / "index" / f"{shard.name}.labels").write_bytes(bytes.fromhex(code_block("labels")))
    (shard.parent / "index" / f"{shard.name}.keys").write_bytes(bytes.fromhex(code_block("keys")))
    return shard


def test_the_example_of_the_page_is_a_dataset(tmp_path):
    shard = write_the_page_s_example(tmp_path)
    assert verify(tmp_path, deep=True)
    [example] = read_dataset(tmp_path)["train"]
    assert example["x"].dtype == np.int16
    assert {n: value.tolist() for n, value in example.items()} == {"x": [1, -2], "label": 1, "key": b"7"}
    # and it equals the file that TensorFlow writes
    [record] = tf.data.TFRecordDataset(str(shard)).as_numpy_iterator()
    assert tf.train.Example.FromString(record).SerializeToString(deterministic=True) == record


def test_the_check_value_of_the_crc_is_that_of_the_page():
    assert crc32c(b"123456789") == 0xE3069283
