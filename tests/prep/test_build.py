"""The result of a build: shards, counts, rejects, and the same bytes with any runner."""

import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.errors import fault, raises
from tfshards.prep import Arrays, ImageFolder, ImageOptions, Options, append, verify
from tfshards.prep.planning.balance import permutation
from tfshards.prep.progress.lines import Reporter
from tfshards.prep.sources.base import Reader
from tfshards.prep.writing.area import AREA_NAME, BuildArea, ShardId
from tfshards.prep.writing.shard import ShardTask, write_shard
from tfshards.schemas import BuildError, InputError, Manifest, OptionsError, read_manifest

ANY_REJECTS = Options(max_rejected=1)


def records(root, manifest: Manifest, split: str = "train") -> list[list[tf.train.Example]]:
    """Return the examples of each shard of a split, read and parsed by TensorFlow."""
    paths = [str(root / shard.path) for shard in manifest.splits[split].shards]
    return [[tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(path)] for path in paths]


def value(example: tf.train.Example, name: str) -> object:
    feature = example.features.feature[name]
    (item,) = getattr(feature, feature.WhichOneof("kind")).value
    return item


def keys(root, manifest: Manifest, split: str = "train") -> list[list[str]]:
    return [[os.fsdecode(value(e, "key")) for e in shard] for shard in records(root, manifest, split)]


def with_rejects(good: int, bad: int) -> dict[str, int | bytes]:
    """Return files of two classes; the bad ones are spread among the others."""
    files: dict[str, int | bytes] = {f"{'ab'[n % 2]}/{n:03d}.png": n for n in range(good)}
    return files | {f"{'ab'[n % 2]}/{n:03d}-bad.jpg": b"no image" for n in range(bad)}


@pytest.mark.parametrize("shards", [1, 2, 5, 13])
def test_n_shards_differ_by_at_most_one_example(shards, small_folder, tmp_path, quiet_build, contents):
    manifest = quiet_build(ImageFolder(small_folder), tmp_path / "out", shards=shards)
    sizes = [shard.num_examples for shard in manifest.splits["train"].shards]
    assert len(sizes) == shards
    assert sum(sizes) == 13
    assert max(sizes) - min(sizes) <= 1
    names = [f"out-train-{manifest.build_id}.tfrecord-{index:05d}-of-{shards:05d}" for index in range(shards)]
    assert [shard.path for shard in manifest.shards] == names
    assert {name for name in contents(tmp_path / "out") if "tfrecord" in name} == {
        *names,
        *(f"index/{name}.{suffix}" for name in names for suffix in ("idx", "labels")),
    }


def test_the_order_is_the_seeds_permutation_of_the_sorted_keys(small_folder, tmp_path, quiet_build):
    manifest = quiet_build(ImageFolder(small_folder), tmp_path / "out", shards=3, seed=5)
    listed = sorted(path.relative_to(small_folder).as_posix() for path in small_folder.rglob("*.png"))
    expected = [listed[number] for number in permutation(13, 5, "train")]
    assert [key for shard in keys(tmp_path / "out", manifest) for key in shard] == expected


@pytest.mark.parametrize(("good", "bad", "shards"), [(12, 5, 4), (7, 30, 2)])
def test_rejects_leave_the_shards_balanced_and_the_totals_adding_up(
    good, bad, shards, image_folder, tmp_path, quiet_build, log
):
    root = image_folder({**with_rejects(good, bad), "a/notes.txt": b"", ".hidden": b""})
    options = Options(max_rejected=1)
    manifest = quiet_build(ImageFolder(root), tmp_path / "out", shards=shards, options=options)
    sizes = [shard.num_examples for shard in manifest.shards]
    assert (len(sizes), sum(sizes), min(sizes) > 0) == (shards, good, True)
    assert max(sizes) - min(sizes) <= 1
    kept = [key for shard in keys(tmp_path / "out", manifest) for key in shard]
    assert sorted(kept) == sorted(key for key in with_rejects(good, bad) if "bad" not in key)
    total = manifest.totals
    assert (total.entries, total.accepted, total.rejected, total.skipped) == (good + bad + 2, good, bad, 2)
    assert total.reasons == {"rejected": {"unreadable": bad}, "skipped": {"hidden": 1, "not an image": 1}}
    lines = (tmp_path / "out" / f"rejected-{manifest.build_id}.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == sorted(
        k for k in with_rejects(good, bad) if "bad" in k
    )
    assert {(json.loads(line)["reason"], *json.loads(line)) for line in lines} == {
        ("unreadable", "key", "reason", "detail", "size")
    }
    assert re.fullmatch(rf"balancing after rejects: \d+ of {shards} shards to rewrite", log[1])
    assert verify(tmp_path / "out", deep=True)


def test_label_counts_count_accepted_examples(image_folder, tmp_path, quiet_build):
    root = image_folder({"a/1.png": 1, "a/2.png": 2, "b/bad.png": b"", "b/3.png": 3, "c/": b""})
    source = ImageFolder(root, class_names=["a", "b", "c"])
    manifest = quiet_build(source, tmp_path / "out", shards=1, options=ANY_REJECTS)
    assert manifest.splits["train"].label_counts == {"a": 2, "b": 1, "c": 0}
    assert (tmp_path / "out" / "labels.txt").read_text() == "a\nb\nc\n"


def test_as_many_rejects_as_allowed_pass_and_one_more_does_not(image_folder, tmp_path, quiet_build, log):
    root = image_folder(with_rejects(18, 2))
    # skipped entries are not inputs: they do not reduce the share of rejects
    for number in range(50):
        (root / f".{number}").touch()
    allowed = Options(max_rejected="10%")
    assert quiet_build(ImageFolder(root), tmp_path / "out", shards=2, options=allowed).totals.rejected == 2
    strict = Options(max_rejected=0.099)
    out = tmp_path / "strict"
    with raises(BuildError, "too-many-rejected", num_rejects=2, inputs=20):
        quiet_build(ImageFolder(root), out, shards=2, options=strict)
    (listed,) = (out / AREA_NAME).glob("*/rejected.jsonl")
    assert [json.loads(line)["key"] for line in listed.read_text().splitlines()] == [
        "a/000-bad.jpg",
        "b/001-bad.jpg",
    ]
    assert not (out / "dataset.json").exists()
    # with a higher limit the same build resumes, and decodes only the examples that move
    del log[:]
    manifest = quiet_build(ImageFolder(root), out, shards=2, options=allowed)
    assert log[0] == "resuming the build: 2 of 2 shards finished"
    assert [(shard.num_examples, shard.digest) for shard in manifest.shards] == [
        (shard.num_examples, shard.digest) for shard in read_manifest(tmp_path / "out").shards
    ]


def test_a_build_names_the_first_rejects_their_reasons_and_the_list(image_folder, tmp_path, quiet_build, log):
    files = {f"good/{number}.png": number for number in range(4)} | {"good/copy.png": 0}
    files |= {f"bad/{number}.png": b"" for number in range(6)}
    source, options = ImageFolder(image_folder(files)), Options(max_rejected=1, duplicates="drop")
    out = tmp_path / "out"
    manifest = quiet_build(source, out, shards=1, options=options)
    assert log[-7:] == [
        f"warning: 7 of 11 inputs are rejected (6 empty, 1 duplicate); "
        f"{out}/rejected-{manifest.build_id}.jsonl lists them",
        *(f"  'bad/{number}.png' (empty): the file has no bytes" for number in range(5)),
        "  and 2 more",
    ]
    log.clear()
    image_folder({"good/5.png": 5, "good/6.png": b""})
    append(source.root, out, max_rejected=1, engine="local", log=log.append)
    assert log[-2].startswith(f"warning: 1 of 2 inputs is rejected (1 empty); {out}/rejected-")


def test_rejects_that_leave_fewer_examples_than_shards_end_the_build(image_folder, tmp_path, quiet_build):
    root = image_folder(with_rejects(2, 2))
    message = r"^after rejects, shards=3 exceeds the 2 examples of split 'train'; use at most 2$"
    with pytest.raises(BuildError, match=message):
        quiet_build(ImageFolder(root), tmp_path / "out", shards=3, options=ANY_REJECTS)


@pytest.mark.parametrize(
    "beam_args",
    [
        ["--runner=FnApiRunner"],
        ["--runner", "BundleBasedDirectRunner"],
        ["--direct_running_mode=multi_threading", "--direct_num_workers=3"],
        ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
    ],
    ids=" ".join,
)
def test_runners_and_workers_make_the_same_bytes(beam_args, image_folder, tmp_path, quiet_build, contents):
    root = image_folder(with_rejects(11, 3))
    quiet_build(ImageFolder(root), tmp_path / "one" / "out", shards=4, options=ANY_REJECTS)
    other = tmp_path / "other" / "out"
    quiet_build(ImageFolder(root), other, shards=4, options=ANY_REJECTS, beam_args=beam_args)
    assert contents(other) == contents(tmp_path / "one" / "out")


def test_a_runner_that_runs_nothing_is_detected(tmp_path, quiet_build):
    args = ["--runner=apache_beam.runners.render.RenderRunner", f"--render_output={tmp_path / 'job.dot'}"]
    with raises(BuildError, "shard-unfinished", where="shard 0 of split 'train'"):
        quiet_build(Arrays({"x": np.arange(4)}), tmp_path / "out", shards=2, beam_args=args)


BEAM_ARGS = {
    "typo": (["--direct_num_workerz=2"], r"^Apache Beam: --direct_num_workerz=2 is not a pipeline option$"),
    "no option": (["FlinkRunner"], r"^Apache Beam: FlinkRunner is not a pipeline option$"),
    "no such value": (["--direct_num_workers=two"], r"^Apache Beam: argument --direct_num_workers: invalid"),
    "no runner": (["--runner=Flonk"], r"^Apache Beam: --runner=Flonk: Unexpected pipeline runner: Flonk"),
    "a runner in no module": (["--runner=none.Flonk"], r"--runner=none\.Flonk: No module named 'none'$"),
}


@pytest.mark.parametrize(("beam_args", "message"), BEAM_ARGS.values(), ids=BEAM_ARGS)
def test_a_mistake_in_beam_options_is_reported_before_writing(beam_args, message, tmp_path, quiet_build):
    with pytest.raises(OptionsError, match=message) as found:
        quiet_build(Arrays({"x": np.arange(4)}), tmp_path / "out", beam_args=beam_args)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "out").exists()


def test_the_help_of_beam_is_shown_on_request(tmp_path, quiet_build, capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        quiet_build(Arrays({"x": np.arange(4)}), tmp_path / "out", beam_args=["--help"])
    assert "--runner" in capsys.readouterr().out


CHANGES = {
    "a byte": lambda root: (root / "cat/00.png").write_bytes((root / "cat/00.png").read_bytes() + b"\0"),
    "a name": lambda root: (root / "cat/00.png").rename(root / "cat/0.png"),
    "a class": lambda root: (root / "cat/00.png").rename(root / "dog/00.png"),
    "one less": lambda root: (root / "cat/00.png").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_other_inputs_are_another_build(change, small_folder, tmp_path, quiet_build):
    before = quiet_build(ImageFolder(small_folder), tmp_path / "out")
    change(small_folder)
    options = Options(max_rejected=1)
    other = quiet_build(ImageFolder(small_folder), tmp_path / "other" / "out", options=options)
    assert other.build_id != before.build_id


IRRELEVANT = {
    "a time": lambda root: os.utime(root / "cat/00.png", ns=(1, 1)),
    "a skipped file": lambda root: (root / "cat/notes.txt").touch(),
    "an empty folder": lambda root: (root / "ant").mkdir(),
    "the folder": lambda root: root.rename(root.with_name("pictures")),
}


@pytest.mark.parametrize("change", IRRELEVANT)
def test_inputs_of_the_same_content_are_the_same_build(change, small_folder, tmp_path, quiet_build):
    before = quiet_build(ImageFolder(small_folder), tmp_path / "out")
    IRRELEVANT[change](small_folder)
    root = small_folder if small_folder.exists() else small_folder.with_name("pictures")
    after = quiet_build(ImageFolder(root), tmp_path / "other" / "out")
    assert (after.build_id, after.splits) == (before.build_id, before.splits)
    assert (after.inputs_digest, after.options) == (before.inputs_digest, before.options)


SHARD = ShardId("train", 0)


def task_of(folder, out, reader: Reader | None = None) -> ShardTask:
    """Return a task with one planned shard."""
    source = ImageFolder(folder)
    listing = source.listing()
    area = BuildArea(out, "12345678")
    area.open()
    area.write_plan("first", SHARD, listing.columns(np.arange(3)))
    return ShardTask(
        area=area,
        reader=reader or source,
        schema=listing.schema,
        phase="first",
        name="photos",
        num_shards={"train": 1},
        reporter=Reporter(),
        finds_duplicates=False,
        compression="none",
    )


def test_a_worker_ends_when_another_has_failed(small_folder, tmp_path):
    task = task_of(small_folder, tmp_path)
    task.area.stop("the reason")
    task.area.stop("a later one")
    with raises(BuildError, "build-stopped"):
        write_shard(task, SHARD)
    assert task.area.stop_path.read_text() == "the reason"
    assert task.area.read_finished("first", SHARD) is None
    assert not list(tmp_path.glob("photos-*"))


class FailingReader:
    """A reader that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, rows: object, schema: object) -> list[object]:
        raise self.error


def test_a_worker_that_fails_stops_the_others_unless_its_process_is_ending(small_folder, tmp_path):
    ending = RuntimeError("cannot schedule new futures after interpreter shutdown")
    for error, stops in ((ValueError("broken"), True), (ending, False)):
        task = task_of(small_folder, tmp_path, FailingReader(error))
        with pytest.raises(type(error)):
            write_shard(task, SHARD)
        assert task.area.stop_path.exists() == stops


def test_a_finished_shard_is_not_written_again_when_a_runner_repeats_its_task(small_folder, tmp_path):
    task = task_of(small_folder, tmp_path)
    write_shard(task, SHARD)
    path = task.area.shards / task.shard_path(SHARD)
    before = path.stat()
    write_shard(task, SHARD)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


ERRORS = {
    "no shards": ({"shards": 0}, OptionsError, fault("shards-range", asked="shards=0")),
    "a negative seed": ({"seed": -1}, OptionsError, fault("seed-range", seed=-1)),
    "number and size": ({"shards": 2, "options": Options(shard_size=9)}, OptionsError, "shards-and-size"),
    "too many shards": ({"shards": 64}, InputError, fault("shards-too-many", asked="shards=64", examples=13)),
    "a split that would be empty": (
        {"options": Options(splits={"train": 0.99, "val": 0.01})},
        InputError,
        fault("split-empty", name="val", share="0.01 of 13 examples"),
    ),
}


@pytest.mark.parametrize(("arguments", "error", "message"), ERRORS.values(), ids=ERRORS)
def test_invalid_inputs_are_reported_first(arguments, error, message, small_folder, tmp_path, quiet_build):
    with raises(error, message):
        quiet_build(ImageFolder(small_folder), tmp_path / "new" / "folders" / "out", **arguments)
    assert not (tmp_path / "new").exists()


def test_ratios_for_a_source_that_has_splits_are_an_error(image_folder, tmp_path, quiet_build):
    root = image_folder({"train/1.png": 1, "val/1.png": 1})
    with raises(InputError, "splits-of-source"):
        quiet_build(ImageFolder(root), tmp_path / "out", options=Options(splits={"train": 1}))


def test_stratifying_requires_labels(tmp_path, quiet_build):
    options = Options(splits={"train": 0.5, "val": 0.5}, stratify=True)
    with raises(InputError, "stratify-no-labels"):
        quiet_build(Arrays({"x": np.arange(9)}), tmp_path / "out", options=options)


@pytest.mark.parametrize(
    ("options", "is_explained"), [({}, True), ({"resize": "400x500"}, True), ({"jpeg_quality": 90}, False)]
)
def test_a_much_larger_dataset_is_explained(options, is_explained, tmp_path, quiet_build, log):
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "photos").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        photo = Image.fromarray(pixels).resize((200, 160), Image.Resampling.BICUBIC)
        photo.save(tmp_path / "photos" / f"{number}.jpg", quality=80, exif=exif)
    quiet_build(ImageFolder(tmp_path / "photos", ImageOptions(**options)), tmp_path / "out")
    found = [line for line in log if line.startswith("the dataset has")]
    assert len(found) == is_explained, log
    assert all(": 3 images could not be kept unchanged; jpeg_quality=95" in line for line in found)
