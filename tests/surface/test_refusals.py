"""Refusals that a program can tell apart by their code, and findings, which are results with status 1."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.pictures import write
from tests.surface.command import refused, run, run_json, snapshot
from tfshards.schemas import read_manifest

IMAGES = "build images photos new"
SPLITS = "--splits=a=0.5 --splits=b=0.5"
# the command line, its exit status, its code, and what the message names
REFUSALS = [
    ([""], 2, "usage", "''"),
    ([*IMAGES.split(), "--format", ""], 2, "usage", ["--format", "empty"]),
    ([*IMAGES.split(), "--splits", ""], 2, "usage", ["--splits", "empty"]),
    ([*IMAGES.split(), "--config", ""], 2, "usage", ["--config", "empty"]),
    (["relabel", "data", "--labels", ""], 2, "usage", ["--labels", "empty"]),
    (["show", "data", ""], 2, "usage", ["KEY", "empty"]),
    (["build", "table", "t.csv", "new", "--roles", "path="], 2, "usage", ["--roles", "'path='"]),
    (f"{IMAGES} -- --runer=FlinkRunner", 2, "options", "--runer=FlinkRunner"),
    (f"{IMAGES} --stratify", 2, "options", "splits="),
    ("", 2, "usage", "COMMAND"),
    ("build", 2, "usage", "KIND"),
    (f"{IMAGES} --runner=DirectRunner", 2, "usage", ["--runner=DirectRunner", "bare --"]),
    (f"{IMAGES} -- --direct_num_workers=two", 2, None, "--direct_num_workers"),
    ("info data -- --runner=X", 2, None, "info"),
    ("info data -q -v", 2, "usage", ["--quiet", "--verbose"]),
    (f"{IMAGES} --shards 1 --shards 2", 2, None, "shards='2'"),
    (f"{IMAGES} --shards a=1 --shards a=2", 2, None, "shards='a=2'"),
    (f"{IMAGES} --shards 2 --shard-size 1MB", 2, "options", ["--shards", "--shard-size"]),
    (f"{IMAGES} --stratify", 2, None, ["stratify=True", "--splits"]),
    (f"{IMAGES} --shards 64", 1, "shards-too-many", ["shards=64", "8"]),
    (f"{IMAGES} --shards 6 {SPLITS}", 1, "shards-too-many", ["6", "4", '{"a": 4, "b": 4}']),
    (f"{IMAGES} --splits a=0.5", 2, "options", "0.5"),
    (f"{IMAGES} --class-names photos", 1, "dataset-missing", ["photos", "dataset.json"]),
    (f"{IMAGES} --class-names keys", 1, None, ["'cat'", "'dog'"]),
    ("build images photos/cat/0.png new", 1, None, "photos/cat/0.png"),
    ("build images data new", 1, None, "data"),
    ("plan images photos broken", 1, "foreign-file", "broken/dataset.json"),
    ("build images photos data --seed 5", 1, "dataset-differs", ["data", "seed", "--overwrite"]),
    ("build arrays x.txt new", 2, None, ["x.txt", ".npz"]),
    ("build arrays gone.npy new", 1, "unreadable", "gone.npy"),
    ("build arrays t=t.csv new", 2, None, "t.csv"),
    ("build table keys new", 2, None, ["keys", ".csv"]),
    ("build table t.csv new --roles a", 2, "usage", ["--roles", "'a'", "NAME=VALUE"]),
    ("info x.npy", 1, "dataset-missing", ["x.npy", "dataset.json"]),
    ("show data cat/9.png", 1, "key-unknown", "'cat/9.png'"),
    ("show data train:99", 1, None, ["train:99", "8"]),
    (["show", "data", "a\x1b[31m\nb"], 1, "key-unknown", r"a\x1b[31m\nb"),
    (["info", "data", "--\x1b[31m"], 2, "usage", r"--\x1b[31m"),
    ("verify data --deep --repair", 2, None, ["--repair", "--deep"]),
    ("verify photos", 1, "dataset-missing", "photos"),
    ("audit data --keys other/mine", 1, None, "other/mine"),
    ("report data --output other/mine", 1, None, "other/mine"),
    ("report data --output nowhere/x.html", 1, None, "nowhere/x.html"),
    ("restore data 01234567", 1, "input", "'01234567'"),
    ("prune photos", 1, "input", "photos"),
    ("reshard data data", 2, "options", ["data", "--overwrite"]),
    ("merge data new", 2, "options", "sources"),
    ("merge data data new", 2, "options", "data"),
    ("merge data more new", 1, "", ["'cat/0.png'", "data", "more", "tfshards remove"]),
    ("merge data numbers new", 1, "input", ["'image'", "data", "numbers"]),
    ("build images photos ~/new", 2, "options", "~/new"),
    ("merge train=~/more test=data new --as-splits", 2, "options", "~/more"),
    ("append x.npy data", 1, "input", "x.npy"),
    ("remove data --keys labels.csv", 1, "key-unknown", ["'key,label'", "2"]),
    ("relabel numbers --labels labels.csv", 1, "input", "numbers"),
    ("export data new", 2, "usage", "--to"),
    ("export data other --to webdataset", 1, None, "other"),
    ("export data data/sub/sub --to webdataset", 1, None, "data/sub/sub"),
    ("show torn", 1, "record-damaged", ["torn/", "/data-train.tfrecord-00000-of-00002"]),
    ("adopt data", 1, None, "data"),
    ("bench data --size none --crop center", 2, None, "crop='center'"),
    ("bench numbers --size 5x5", 2, None, "size='5x5'"),
    ("which data --step 0", 2, "usage", "POSITION"),
    ("when data labels.csv cat/0.png", 1, None, "labels.csv"),
    ("completion csh", 2, "usage", ["csh", "bash"]),
]
# command lines whose output OUT belongs to somebody else, or is within an input
WRITING = {
    "build images photos OUT": "photos/new",
    "build arrays x.npy OUT": "",
    "build table t.csv OUT": "",
    "plan images photos OUT": "photos/new",
    "reshard data OUT --shards 1": "data/new",
    "merge a=data b=new-ones OUT --as-splits": "data/new",
    "export data OUT --to webdataset": "data/new",
    "append photos OUT": "",
    "remove OUT --keys keys": "",
    "relabel OUT --labels labels.csv": "",
    "restore OUT 01234567": "",
    "adopt OUT": "",
    "prune OUT": "",
}


@pytest.mark.parametrize(
    ("line", "status", "code", "names"),
    REFUSALS,
    ids=[str(row[0]).encode("unicode_escape").decode() for row in REFUSALS],
)
def test_a_refusal_has_a_code_and_names_what_is_wrong(line, status, code, names, here):
    refused(line, names, status=status)
    if code:
        refused(line, names, status=status, code=code)


@pytest.mark.parametrize("line", WRITING)
def test_nothing_is_written_into_a_folder_of_somebody_else_or_an_input(line, here):
    refused(line.replace("OUT", "other"), "other", status=1)
    refused(line.replace("OUT", "x.npy"), "x.npy", status=1)
    if inside := WRITING[line]:
        refused(line.replace("OUT", inside), inside, status=1 if line.startswith("export") else 2)


READING = [
    "info",
    "generations",
    "prune",
    "adopt",
    "diff data",
    "append photos",
    "reshard new --shards 1",
    "bench --batch-size 2",
]


@pytest.mark.parametrize("line", READING)
def test_a_damaged_manifest_is_named_with_its_path(line, here):
    verb, *rest = line.split()
    words = [verb, *rest, "broken"] if verb == "append" else [verb, "broken", *rest]
    message = refused(words, "broken/dataset.json", status=1, code="format")
    path = json.loads(run_json(words)[0].out)["path"]
    assert Path(path).absolute() == Path("broken/dataset.json").absolute(), message


def test_verify_reports_damage_on_standard_output_with_status_1(own):
    shard = read_manifest("data").shards[1].path
    for options, problems in ((["--deep"], 0), ([], 1), (["--deep"], 2)):
        ended, document = run_json(["verify", "data", *options])
        assert (ended.status, ended.err) == (int(problems > 0), "")
        assert [found["place"] for found in document["problems"]] == [shard] * problems
        if not problems:
            content = bytearray(Path("data", shard).read_bytes())
            content[40] ^= 1
            Path("data", shard).write_bytes(content)
    status, out, err = run("verify data")
    assert (status, err) == (1, "")
    assert out.startswith(f"{shard}: ")
    assert out.splitlines()[-1].startswith("data: 1 ")
    refused("verify broken", "broken/dataset.json", status=1)


def test_differences_are_results_with_status_1(own):
    status, out, err = run("diff data numbers")
    assert (status, bool(out), err) == (1, True, "")
    assert run("diff data more")[::2] == (0, "")


def test_a_build_that_rejects_too_much_names_the_files_and_where_all_are_listed(own):
    write("photos/cat/bad\n.png", "text")
    status, out, err = run("build images photos new")
    assert (status, out) == (1, "")
    assert [line for line in err.splitlines() if not line.isprintable()] == []
    assert r"'cat/bad\n.png' (unreadable)" in err
    assert "max_rejected=" in err
    (listed,) = Path("new").glob("*/work/rejected.jsonl")
    assert str(listed) in err
    assert run_json("build images photos new")[1]["kind"] == "build"
    write("photos/cat/notes.txt", "text")
    _ended, document = run_json("plan images photos new")
    assert document["skipped"] == {"not an image": 1}
    status, out, err = run("build images photos new --max-rejected 50%")
    rows = [line.split() for line in out.splitlines()]
    assert (status, rows[1][:2], rows[2][:3]) == (0, ["split", "examples"], ["train", "8", "1"])
    assert rows[4:7] == [["class", "train"], ["cat", "4"], ["dog", "4"]]
    counts = ["10", "8", "1", "1"]
    assert [word for word in rows[7] if word.isdecimal()] == counts
    assert any(word.endswith("/rejected.jsonl") for row in rows for word in row)


def test_links_lead_out_of_a_folder_only_on_request(own):
    write("outside/8.png", Path("photos/cat/0.png").read_bytes())
    Path("photos/cat/8.png").symlink_to("../../outside/8.png")
    for switch, skipped, cats in (("", {"link out of the root": 1}, 4), (" --follow-links", {}, 5)):
        plan = run_json(f"plan images photos new{switch}")[1]
        assert plan["skipped"] == skipped
        assert plan["splits"]["train"]["label_counts"] == {"cat": cats, "dog": 4}


def test_repeated_builds_are_up_to_date_and_print_the_same(own):
    first = run("build images photos new")
    again = run("build images photos new")
    assert (first.status, again.status, first.out) == (0, 0, again.out)
    assert "up to date" in again.err
    info, folder = run("info new"), Path("new", read_manifest("new").folder)
    assert info == (0, f'{first.out}TensorFlow Datasets: tfds.builder_from_directory("{folder}")\n', "")


# A plan writes nothing, and describes exactly what the build then writes


TWO = "--splits=a=.5 --splits=b=.5 --shards 3"


@pytest.mark.parametrize(
    "line",
    [
        f"images photos new {TWO} --stratify --seed 5",
        "images photos new --shard-size 300B --name pets",
        f"arrays all.npz new {TWO} --group-by site",
        "table t.csv new --shards 2",
    ],
)
def test_a_plan_writes_nothing_but_fits_the_build(line, own):
    # every site has every class, so that no split lacks one
    np.savez("all.npz", x=np.zeros((20, 5)), label=np.arange(20) % 4, site=np.arange(20) // 5)
    before = snapshot(".")
    (ended, plan), text = run_json(f"plan {line}"), run(f"plan {line}")
    assert (ended.status, ended.err, text.status, snapshot(".")) == (0, "", 0, before)
    assert run(f"build {line}").status == 0
    manifest = read_manifest("new")
    again, planned_again = run_json(f"plan {line}")
    assert (planned_again, again.err) == (plan, "")
    assert plan["schema"] == manifest.schema.to_json()
    assert [*plan["splits"]] == [*manifest.splits]
    for name, split in manifest.splits.items():
        planned = plan["splits"][name]
        assert planned["num_shards"] == len(split.shards)
        assert planned["examples_per_shard"] == [shard.num_examples for shard in split.shards]
        assert planned["num_examples"] == split.num_examples
        assert planned["label_counts"] == split.label_counts
        assert f"\n{name} " in text.out
        # a record holds the bytes of its source and some more
        more = [s.num_bytes - b for s, b in zip(split.shards, planned["bytes_per_shard"], strict=True)]
        assert all(0 < e < 200 * shard.num_examples for e, shard in zip(more, split.shards, strict=True))
