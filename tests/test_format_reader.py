"""The reader in tests/format_reader.py reads what tfshards writes, and the example of docs/format.md."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from PIL import Image

from tests.format_reader import crc32c, read_dataset
from tfshards.prep import ImageFolder, Options, Table, build, verify
from tfshards.schemas import read_manifest

PAGE = Path(__file__).parents[1] / "docs" / "format.md"


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_images_and_masks_are_read_as_they_were_drawn(tmp_path, compression):
    random, drawn = np.random.default_rng(0), {}
    for number in range(5):
        for name, shape in (("images", (4, 5 + number, 3)), ("masks", (4, 5 + number))):
            pixels = random.integers(0, 255, shape, np.uint8)
            path = tmp_path / "photos" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
            drawn[name, b"images/%d.png" % number] = pixels
    (tmp_path / "photos" / "images" / "without mask.png").write_bytes(b"")
    source, options = (
        ImageFolder(tmp_path / "photos", mask_dir="masks"),
        Options(compression=compression, max_rejected="50%"),
    )
    build(source, tmp_path / "data", shards=2, options=options, log=lambda _: None)
    examples = read_dataset(tmp_path / "data")["train"]
    assert len(examples) == 5
    for example in examples:
        key = example["key"].item()
        assert np.array_equal(example["image"], drawn["images", key])
        assert np.array_equal(example["mask"][:, :, 0], drawn["masks", key])


def test_lists_of_any_length_are_read_as_the_table_has_them(tmp_path):
    rows = {
        "tags": [[1, 2], [], [3]],
        "words": [["a"], [], ["b", "c"]],
        "boxes": [[[1.0, 2.0, 3.0, 4.0]], [], [[5.0, 6.0, 7.0, 8.0]] * 2],
    }
    boxes = pa.array(rows["boxes"], pa.list_(pa.list_(pa.float32(), 4)))
    pq.write_table(pa.table(rows | {"boxes": boxes}), tmp_path / "t.parquet")
    build(Table(tmp_path / "t.parquet"), tmp_path / "data", shards=2, log=lambda _: None)
    for example in read_dataset(tmp_path / "data")["train"]:
        number = int(example["key"].item())
        assert [word.decode() for word in example["words"]] == rows["words"][number]
        assert example["tags"].tolist() == rows["tags"][number]
        assert example["boxes"].tolist() == rows["boxes"][number]


def code_block(language):
    return re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)[1]


def write_the_page_s_example(root):
    """Write the example as the page shows it; return its one shard."""
    (root / "dataset.json").write_text(code_block("json"), encoding="ascii")
    shard = root / read_manifest(root).shards[0].path
    # remarks follow the columns of hex after three or more spaces
    columns = (re.match(r" *((?:[0-9a-f]{2} )+)", line) for line in code_block("hex").splitlines())
    shard.write_bytes(bytes.fromhex("".join(column[1] for column in columns)))
    (root / "index").mkdir()
    (root / "index" / f"{shard.name}.idx").write_text(code_block("text"), encoding="ascii")
    (root / "index" / f"{shard.name}.labels").write_bytes(bytes.fromhex(code_block("labels")))
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
