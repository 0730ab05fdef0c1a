"""Feature lists of other tools become features that every verb and the loader read."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from tests.pictures import image_file
from tfshards import loader
from tfshards.prep import adopt, audit, export, report, reshard, verify
from tfshards.prep.cli.main import main
from tfshards.prep.views.tfds import tfds_problems
from tfshards.schemas import Feature, FormatError, InputError, read_manifest
from tfshards.schemas.manifest import with_digest

pytestmark = pytest.mark.nightly

QUIET = {"log": lambda _: None}


def png(number: int, size: tuple[int, int] = (4, 5)) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (*size, 3)).astype(np.uint8)
    return image_file(pixels)


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


def sequence(context: dict, **lists) -> tf.train.SequenceExample:
    """Return a record with these features, and feature lists of one feature for each step."""
    steps = {name: tf.train.FeatureList(feature=[*map(feature, each)]) for name, each in lists.items()}
    return tf.train.SequenceExample(
        context=features(**context), feature_lists=tf.train.FeatureLists(feature_list=steps)
    )


# the audio of a video, the words of a caption, and labels; the last has no audio
CLIPS = [
    {
        "audio": [[number + 0.5, step + 0.25] for step in range(3)],
        "words": [[b"word %d" % step] for step in range(number)],
        "marks": [[step] for step in range(number + 1)],
    }
    for number in range(1, 6)
]


@pytest.fixture
def clips(tmp_path):
    rows = []
    for number, clip in enumerate(CLIPS):
        lists = {name: each for name, each in clip.items() if (name, number) != ("audio", 4)}
        context = {"id": [number], "label": [number % 2], "key": [b"clip %d" % number]}
        # a value that only some records have
        rows.append(sequence({**context, **({"score": [number / 4]} if number % 2 else {})}, **lists))
    return write(tmp_path / "clips", rows)


def test_feature_lists_are_ragged_features(clips, tmp_path, capsys, log):
    manifest = adopt(clips, log=log.append)
    stored = {each.name: (each.kind, each.shape, each.storage) for each in manifest.schema.features}
    assert stored == {
        "audio": ("float", (None, 2), "steps"),
        "words": ("bytes", (None,), "steps"),
        "marks": ("int", (None,), "steps"),
        "id": ("int", (), None),
        "key": ("bytes", (), None),
        "label": ("label", (), None),
        "score": ("float", (None,), "optional"),
    }
    assert any("'score' is only in 2 of 5 records, and not in train.tfrecord, record 0" in one for one in log)
    assert any("'audio' is only in 4 of 5 records" in line for line in log)
    assert verify(clips, deep=True, decode=True)
    for select in (None, ("id", "score"), ("words", "audio", "score", "id")):
        (batch,) = loader.load(clips, batch_size=5, select=select)
        found = batch if select is None else dict(zip(select, batch, strict=True))
        for place, number in enumerate(found["id"].numpy().tolist()):
            clip = CLIPS[number]
            assert found["score"][place].numpy().tolist() == ([number / 4] if number % 2 else [])
            if "audio" in found:
                assert found["audio"][place].numpy().tolist() == (clip["audio"] if number < 4 else [])
                assert found["words"][place].numpy().tolist() == [word for (word,) in clip["words"]]
    assert main(["show", str(clips), "clip 4", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["examples"]
    assert shown["features"]["audio"] == shown["features"]["score"] == []
    assert shown["features"]["words"] == [f"word {step}" for step in range(5)]
    assert report(clips, tmp_path / "page.html").exists()
    assert audit(clips)


def test_datasets_of_them_are_derived_exported_and_read_again(clips, tmp_path):
    adopt(clips, **QUIET)
    reshard(clips, tmp_path / "two", shards=2, **QUIET)
    assert verify(tmp_path / "two", deep=True)
    (batch,) = loader.load(tmp_path / "two", batch_size=5, select=("key", "marks"))
    assert sorted(zip(batch[0].numpy(), batch[1].to_list(), strict=True)) == [
        (b"clip %d" % number, [*range(number + 2)]) for number in range(5)
    ]
    export(clips, tmp_path / "parquet", to="parquet", select=["id", "audio", "score", "words"], **QUIET)
    table = pq.read_table(next((tmp_path / "parquet" / "data").glob("*.parquet")))
    assert table["audio"].to_pylist() == [*(clip["audio"] for clip in CLIPS[:4]), []]
    assert table["score"].to_pylist() == [[], [0.25], [], [0.75], []]
    assert any("feature lists" in str(problem) for problem in tfds_problems(read_manifest(clips)))
    # adopted again, nothing changes
    assert adopt(clips, **QUIET) == read_manifest(clips)


def test_what_steps_and_missing_features_cannot_be_is_refused(tmp_path):
    wrong = {
        "'x': is a list of images; write one feature per view": [sequence({}, x=[[png(1)], [png(2)]])],
        "'y': is a list of images": [tf.train.Example(features=features(y=[png(1), png(2)]))],
        "'z': is an image that some records lack": [
            tf.train.Example(features=features(id=[1], z=[png(1)])),
            tf.train.Example(features=features(id=[2])),
        ],
        "has steps of 1 to 2 values": [sequence({}, x=[[1], [1, 2]])],
        "has steps of 0 to 1 values": [sequence({}, x=[[1], []])],
        "is in the feature lists of only 1 of 2 records": [sequence({}, x=[[1]]), sequence({"x": [1]})],
        "only the shape [None] may vary": [sequence({}, x=[[b"a", b"b"]])],
        "is in feature lists; every record must have one": [sequence({"id": [1]}, key=[[b"a"]])],
    }
    for number, (text, rows) in enumerate(wrong.items()):
        with pytest.raises(InputError) as error:
            adopt(write(tmp_path / str(number), rows), **QUIET)
        assert text in str(error.value)
    with pytest.raises(FormatError, match="is in its context and in its feature lists"):
        adopt(write(tmp_path / "twice", [sequence({"x": [1]}, x=[[1]])]), **QUIET)
    for storage, shape in (("steps", ()), ("optional", (3,)), ("other", (None,))):
        with pytest.raises(ValueError, match="storage is"):
            Feature("x", "int", "int64", shape, storage=storage)
    folder = write(tmp_path / "marks", [sequence({}, x=[[1]])])
    adopt(folder, **QUIET)
    text = (folder / "dataset.json").read_text()
    (folder / "dataset.json").write_text(with_digest(text.replace('"steps"', '"leaps"')))
    with pytest.raises(FormatError, match="storage: is 'leaps', must be one of optional, steps"):
        read_manifest(folder)
