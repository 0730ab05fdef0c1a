"""``prune`` removes files that no longer belong to a dataset, lists them, and touches nothing else."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.errors import raises
from tfshards.prep import Arrays, ImageFolder, Options, Pruned, build, prune, verify
from tfshards.prep.building.output import locked
from tfshards.prep.cli import main as cli
from tfshards.prep.writing.area import AREA_NAME
from tfshards.schemas import BuildError, FormatError, InputError, read_manifest
from tfshards.schemas.build_area import create
from tfshards.schemas.manifest_file import write_manifest

from .commands import contents
from .inputs import write_inputs

NUMBERS = Arrays({"x": np.arange(30), "label": np.arange(30) % 3})
MINE = (
    "notes.txt",
    ".hidden",
    ".mine.tmp",
    # named like the shards of a build, but without an index
    "logs-20240101.tfrecord-00000-of-00001",
    "index/notes.idx",
    "data-train.tfrecord-00000-of-00001",
)


def built(source, out, **options):
    given = {"shards": 2, "options": Options(max_rejected=1), "engine": "local", "log": lambda _: None}
    return build(source, out, **{**given, **options})


@pytest.fixture
def two_generations(tmp_path):
    """A dataset and the one that it replaced, among files that no build made."""
    out = tmp_path / "data"
    old, new = built(NUMBERS, out), built(NUMBERS, out, seed=1, overwrite=True)
    for name in MINE:
        (out / name).write_text("mine")
    return out, old, new


def test_only_an_earlier_generation_is_removed(two_generations):
    out, old, new = two_generations
    before = contents(out)
    found = prune(out)
    paths = [path for shard in old.shards for path in shard.files]
    paths += [f"inputs-{old.build_id}.npz", f"generations/{old.build_id}.json"]
    assert len(paths) == 8
    assert found == [Pruned(path, len(before[path])) for path in paths]
    assert contents(out) == {p: data for p, data in before.items() if p not in (*paths, "generations")}
    assert read_manifest(out) == new
    assert verify(out, deep=True)
    assert prune(out) == []


def test_files_named_by_the_manifest_stay_even_if_another_build_made_them(two_generations):
    out, old, new = two_generations
    # as after append: shards of an earlier build belong to the dataset, too
    split = new.splits["train"]
    shards = (split.shards[0], old.splits["train"].shards[1])
    write_manifest(replace(new, splits={"train": replace(split, shards=shards)}), out)
    named = {shard.path for shard in shards}
    assert len({path.split(".")[0] for path in named}) == 2
    gone = {item.path for item in prune(out)}
    assert not gone & named
    assert all((out / path).exists() for shard in shards for path in (shard.path, *shard.companion_digests))
    # the other shard of the old generation with its index and labels, and its manifest
    assert len(gone) == 4


def test_rejects_and_the_build_area_are_removed(tmp_path):
    write_inputs(tmp_path)
    out, source = tmp_path / "data", ImageFolder(tmp_path / "photos")
    old, new = built(source, out), built(source, out, seed=1, overwrite=True)
    after = contents(out)
    with raises(BuildError, "too-many-rejected"):
        build(source, out, shards=2, seed=2, overwrite=True, engine="local", log=lambda _: None)
    create(out / ".build" / "staged-abcabcab")
    (out / ".build" / "staged-abcabcab" / "copy").write_bytes(bytes(10))
    unfinished = {p: data for p, data in contents(out).items() if re.search(r"/shards/data-train-[^/]*$", p)}
    assert len(unfinished) == 2
    gone = {item.path: item.num_bytes for item in prune(out)}
    assert not unfinished.keys() & contents(out).keys()
    assert f"inputs-{old.build_id}.npz" not in contents(out)
    assert f"rejected-{old.build_id}.jsonl" not in contents(out)
    assert gone[f"{AREA_NAME}/"] > 10 + sum(map(len, unfinished.values()))
    assert verify(out, deep=True)
    assert contents(out) == {
        path: data for path, data in after.items() if old.build_id not in path and path != "generations"
    }
    assert {f"rejected-{new.build_id}.jsonl", f"inputs-{new.build_id}.npz"} <= contents(out).keys()


def test_a_build_that_ended_without_a_commit_is_removed_completely(tmp_path):
    write_inputs(tmp_path)
    out = tmp_path / "data"
    with raises(BuildError, "too-many-rejected"):
        built(ImageFolder(tmp_path / "photos"), out, options=Options())
    (out / "mine.txt").write_text("mine")
    found = prune(out)
    assert [item.path for item in found][-1] == f"{AREA_NAME}/"
    assert contents(out) == {"mine.txt": b"mine"}


def test_shards_that_may_have_been_committed_stay(two_generations):
    out, *_ = two_generations
    (out / "dataset.json").unlink()
    before = contents(out)
    with raises(InputError, "nothing-to-prune"):
        prune(out)
    (out / AREA_NAME).mkdir()
    create(out / AREA_NAME / "staged-abcabcab")
    assert [item.path for item in prune(out)] == [f"{AREA_NAME}/"]
    assert contents(out) == before


def test_a_file_with_another_hard_link_frees_nothing(tmp_path):
    write_inputs(tmp_path)
    out, source = tmp_path / "data", ImageFolder(tmp_path / "photos")
    first = built(source, out, shards=3)
    linked, *others = (shard.path for shard in first.shards)
    (tmp_path / "other").hardlink_to(out / linked)
    before = contents(out)
    built(source, out, shards=3, seed=1, overwrite=True)
    sizes = {item.path: item.num_bytes for item in prune(out)}
    assert sizes[linked] == 0
    assert all(sizes[path] == len(before[path]) for path in others)


def test_a_folder_without_a_dataset_is_refused(tmp_path):
    out = tmp_path / "data"
    with raises(InputError, "nothing-to-prune"):
        prune(out)
    (out / "index").mkdir(parents=True)
    (out / "data-train-01234567.tfrecord-00000-of-00001").touch()
    (out / "index" / "data-train-01234567.tfrecord-00000-of-00001.idx").touch()
    before = contents(out)
    with raises(InputError, "nothing-to-prune"):
        prune(out)
    assert contents(out) == before


def test_a_manifest_that_cannot_be_read_is_reported_and_nothing_is_removed(two_generations):
    out, *_ = two_generations
    (out / "dataset.json").write_text("{}")
    before = contents(out)
    with pytest.raises(FormatError, match=r"dataset\.json"):
        prune(out)
    assert contents(out) == before


def test_nothing_is_removed_while_a_build_is_running(two_generations):
    out, *_ = two_generations
    before = contents(out)
    with locked(out), raises(InputError, "build-running"):
        prune(out)
    assert contents(out) == before


def test_the_command_lists_removed_files_and_bytes(two_generations, capsys):
    out, old, _ = two_generations
    index, before = (out / old.shards[0].files[0]).read_bytes(), contents(out)
    assert cli.main(["prune", str(out), "--dry-run"]) == 0
    dry = capsys.readouterr().out
    assert contents(out) == before
    assert cli.main(["prune", str(out)]) == 0
    wet = capsys.readouterr().out
    assert dry == wet.replace("removed ", "would remove ")
    assert wet.splitlines()[0] == f"removed {old.shards[0].files[0]} ({len(index)} B)"
    assert re.fullmatch(rf"{out}: removed \d\.\d KiB", wet.splitlines()[-1])
    assert cli.main(["prune", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: nothing to remove\n"
