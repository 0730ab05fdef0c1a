"""Records of other tools with lists of images become features that every verb and the loader read."""

import io
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image as Pillow

from tests.pictures import image_file
from tfshards import loader
from tfshards.prep import adopt, audit, export, report, verify
from tfshards.prep.cli.main import main
from tfshards.schemas import FormatError

pytestmark = pytest.mark.nightly

QUIET = {"log": lambda _: None}


def png(number: int, size: tuple[int, int] = (4, 5)) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (*size, 3)).astype(np.uint8)
    return image_file(pixels)


def pixels_in(data: bytes) -> np.ndarray:
    return np.asarray(Pillow.open(io.BytesIO(data)))


def feature(values) -> tf.train.Feature:
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def features(**values) -> tf.train.Features:
    return tf.train.Features(feature={name: feature(each) for name, each in values.items()})


def write(folder, records):
    folder.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(folder / "train.tfrecord")) as writer:
        for record in records:
            writer.write(record.SerializeToString())
    return folder


FRAMES = [[png(10 * number + place) for place in range(number % 3)] for number in range(1, 6)]


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    rows = [
        tf.train.Example(features=features(frames=few, pair=[png(7), png(8)], id=[n], words=[b"a", png(1)]))
        for n, few in enumerate(FRAMES)
    ]
    # an empty list of byte strings
    rows[2].features.feature["frames"].bytes_list.SetInParent()
    folder = write(tmp_path_factory.mktemp("frames"), rows)
    adopt(folder, **QUIET)
    return folder


def test_lists_of_images_are_adopted_verified_and_loaded(frames, capsys):
    assert verify(frames, deep=True, decode=True)
    (batch,) = loader.load(frames, batch_size=5, image=loader.Image())
    for number, ours in enumerate(batch["frames"]):
        assert [each.numpy().tolist() for each in ours] == [pixels_in(d).tolist() for d in FRAMES[number]]
    assert np.array_equal(batch["pair"][2], [pixels_in(png(7)), pixels_in(png(8))])
    assert batch["words"].shape == (5, 2)
    assert main(["show", str(frames), "train:1", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["examples"]
    assert [image["num_bytes"] for image in shown["features"]["frames"]] == [*map(len, FRAMES[1])]
    assert main(["show", str(frames), "train:2"]) == 0
    text = capsys.readouterr().out
    assert "frames: none" in text
    assert text.count("PNG 4 x 5 (height x width)") == 2


def test_a_damaged_image_in_a_list_is_found(tmp_path):
    torn = png(3)[:60]
    folder = write(tmp_path, [tf.train.Example(features=features(frames=[png(1), png(2), torn]))])
    adopt(folder, **QUIET)
    found = verify(folder, deep=True, decode=True)
    assert not found
    assert "the image 'frames' cannot be decoded" in str(found)


def test_reports_show_the_first_image_and_audits_compare_all(frames, tmp_path, capsys):
    page = report(frames, tmp_path / "page.html")
    # two pictures: the sheet, and the examples that are shown in detail; one list of frames is empty
    assert page.read_text().count("data:image/webp") >= 4
    found = audit(frames)
    assert "only examples with equal frames, pair were searched" in str(found)
    assert main(["show", str(frames), "train:0", "--save", str(tmp_path / "first.png")]) == 0
    assert (tmp_path / "first.png").read_bytes() == FRAMES[0][0]
    assert main(["show", str(frames), "train:2", "--save", str(tmp_path / "none.png")]) == 2


def test_exports_refuse_lists_of_images(frames, tmp_path):
    for name in ("parquet", "webdataset"):
        with pytest.raises(FormatError, match="frames: is a list of images"):
            export(frames, tmp_path / name, to=name, **QUIET)
