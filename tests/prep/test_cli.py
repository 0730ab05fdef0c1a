"""The command line: exit statuses, output streams, messages, interrupts, progress."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from tfshards.prep import ImageFolder, Options
from tfshards.prep.cli import main as cli
from tfshards.prep.progress import bars
from tfshards.prep.writing.area import AREA_NAME
from tfshards.schemas import read_manifest

COMMAND = [sys.executable, "-m", "tfshards"]


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Return a function from arguments to (exit status, stdout, stderr), run in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def dataset(small_folder, tmp_path, quiet_build) -> Path:
    quiet_build(ImageFolder(small_folder), tmp_path / "out", shards=2)
    return tmp_path / "out"


def test_build_images_makes_a_dataset_and_prints_its_contents(small_folder, run):
    status, out, err = run("build", "images", "photos", "data/pets", "--shards", 4)
    assert status == 0
    manifest = read_manifest("data/pets")
    assert (manifest.name, len(manifest.shards), manifest.num_examples) == ("pets", 4, 13)
    lines = out.splitlines()
    assert lines[0] == f"pets, build {manifest.build_id}"
    assert re.fullmatch(r"split +examples +shards +bytes +examples per shard", lines[1])
    assert re.fullmatch(r"train +13 +4 +\d+\.\d KiB +3 to 4", lines[2])
    assert lines[3] == "features: image (image, uint8 ? x ? x 3), label (label, int64), key (bytes, bytes)"
    assert [line.split() for line in lines[4:7]] == [["class", "train"], ["cat", "7"], ["dog", "6"]]
    assert lines[7:] == ["entries: 13 = 13 accepted + 0 rejected + 0 skipped"]
    assert re.fullmatch(r"starting build: 13 examples, \d\.\d KiB, 4 shards\n", err)
    # and again: up to date, the same result
    assert run("build", "images", "photos", "data/pets", "--shards", 4) == (
        0,
        out,
        "data/pets is up to date (sizes of its files were compared; 'tfshards verify' compares contents)\n",
    )


def test_every_option_reaches_the_build(small_folder, run):
    (small_folder / "cat" / "bad.jpg").write_bytes(b"text")
    options = ["--shards", 2, "--shards", "val=1", "--split", "train=70%", "--split", "val=0.3", "--stratify"]
    options += [
        "--check",
        "header",
        "--balance",
        "bytes",
        "--max-rejected",
        "50%",
        "--seed",
        7,
        "--name",
        "pets",
    ]
    status, _, _ = run("build", "images", "photos", "out", *options, "--", "--direct_num_workers=2")
    assert status == 0
    manifest = read_manifest("out")
    assert manifest.name == "pets"
    assert {name: len(split.shards) for name, split in manifest.splits.items()} == {"train": 2, "val": 1}
    expected = {
        "check": "header",
        "stratify": True,
        "balance": "bytes",
        "seed": 7,
        "shards": {"train": 2, "val": 1},
    }
    assert expected.items() <= manifest.options.items()
    assert manifest.options["splits"] == {"train": "7/10", "val": "3/10"}
    assert manifest.totals.rejected == 1


def test_build_arrays_takes_files_by_name(array_files, run):
    arguments = array_files(image=np.zeros((8, 4), np.uint8), target=np.arange(8) % 2)
    options = [
        "--shard-size",
        "20B",
        "--list",
        "image",
        "--group-by",
        "target",
        "--split",
        "a=.5",
        "--split",
        "b=.5",
    ]
    status, out, _ = run(
        "build", "arrays", arguments[0], arguments[1].replace("target=", "label="), "out", *options[:4]
    )
    assert status == 0
    manifest = read_manifest("out")
    assert [(f.name, f.kind) for f in manifest.schema.features] == [
        ("image", "int"),
        ("label", "label"),
        ("key", "bytes"),
    ]
    assert len(manifest.shards) == 5
    assert [line.split() for line in out.splitlines()[4:7]] == [["class", "train"], ["0", "4"], ["1", "4"]]
    assert run("build", "arrays", *arguments, "grouped", *options[4:])[0] == 0
    assert {name: split.num_examples for name, split in read_manifest("grouped").splits.items()} == {
        "a": 4,
        "b": 4,
    }


def test_overwrite_replaces_a_dataset_with_other_options(dataset, run):
    status, out, err = run("build", "images", "photos", "out", "--seed", 1)
    assert (status, out) == (1, "")
    assert "holds a dataset with other options" in err
    assert run("build", "images", "photos", "out", "--seed", 1, "--overwrite")[0] == 0
    assert read_manifest("out").options["seed"] == 1


HOLDS = "out already holds this build, unless the content of inputs has changed\n"
PLANS = {
    "images": (
        ["images", "photos"],
        ["--shards", "3", "--split", "train=0.7", "--split", "val=0.3", "--stratify", "--seed", "5"],
    ),
    "images by bytes": (["images", "photos"], ["--shards", "3", "--balance", "bytes"]),
    "images by size": (["images", "photos"], ["--shard-size", "300B", "--name", "pets"]),
    "arrays": (["arrays", "x.npy", "label=y.npy"], ["--shards", "3"]),
    "an archive": (
        ["arrays", "all.npz"],
        ["--shards", "3", "--group-by", "site", "--split", "a=.5", "--split", "b=.5"],
    ),
}


@pytest.mark.parametrize(("source", "options"), PLANS.values(), ids=PLANS.keys())
def test_a_plan_writes_nothing_and_matches_the_build(
    source, options, small_folder, array_files, run, contents
):
    array_files(x=np.zeros((20, 5)), y=np.arange(20) % 4)
    # every site has every class, so that no split lacks one
    np.savez("all.npz", x=np.zeros((20, 5)), label=np.arange(20) % 4, site=np.arange(20) // 5)
    before = contents(Path())
    status, out, err = run("plan", *source, "out", *options, "--json")
    assert (status, err, contents(Path())) == (0, "", before)
    plan = json.loads(out)
    assert run("build", *source, "out", *options)[0] == 0
    manifest = read_manifest("out")
    # planned again, it is the same, and recognized as the plan of the dataset
    assert run("plan", *source, "out", *options, "--json") == (0, out, HOLDS)
    assert plan["schema"] == manifest.schema.to_json()
    assert list(plan["splits"]) == list(manifest.splits)
    for name, split in manifest.splits.items():
        planned = plan["splits"][name]
        assert planned["num_examples"] == split.num_examples
        assert planned["num_shards"] == len(split.shards)
        assert planned["examples_per_shard"] == [shard.num_examples for shard in split.shards]
        assert planned["label_counts"] == split.label_counts
        # a record holds the bytes of its source and some more
        more = [s.num_bytes - b for s, b in zip(split.shards, planned["bytes_per_shard"], strict=True)]
        assert all(
            0 < extra < 200 * shard.num_examples for extra, shard in zip(more, split.shards, strict=True)
        )


def test_a_plan_reports_what_the_output_folder_holds(dataset, run):
    build_id = read_manifest("out").build_id
    command = ["plan", "images", "photos", "out"]
    assert run(*command, "--shards", 2)[2] == HOLDS
    status, out, err = run(*command, "--shards", 3)
    assert (status, err) == (0, f"out holds another build, {build_id}: build must overwrite it\n")
    assert out.startswith("split ")
    manifest = dataset / "dataset.json"
    manifest.write_text(manifest.read_text()[:-9])
    assert run(*command)[2] == "out holds a dataset that cannot be read: build must overwrite it\n"
    manifest.write_text("{")
    assert "out/dataset.json was not written by tfshards and is kept; move it away" in run(*command)[2]


def test_a_plan_shows_shards_classes_steps_and_skipped_files(image_folder, run):
    image_folder(
        {f"{'ab'[n % 2]}/{n:03}.png": b"x" * n for n in range(40)}
        | {"c/": b"", "a/notes.txt": b"", ".x": b""}
    )
    status, out, err = run("plan", "images", "photos", "out", "--shards", 3, "--batch-size", 4)
    assert status == 0
    assert err == "warning: the folder 'c' holds no images and is not a class; --class-names can name it\n"
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["split", "examples", "shards"]
    assert re.fullmatch(r"train +40 +3 +780 B +13 to 14 +\d+ B to \d+ B", lines[1])
    assert [line.split() for line in lines[3:6]] == [["class", "train"], ["a", "20"], ["b", "20"]]
    assert re.split(r"  +", lines[6])[:4] == [
        "steps per epoch, batch 4 per worker",
        "1 worker",
        "2 workers",
        "4 workers",
    ]
    # 40 // (4 * workers), for 1, 2, 4 and up to 64 workers
    assert lines[7].split() == ["train", "10", "5", "2", "1", "0", "0", "0"]
    assert lines[8].split()[-7:] == ["0", "0", "8", "8", "40", "40", "40"]
    assert lines[9:] == ["skipped: 1 hidden", "skipped: 1 not an image"]


def test_many_classes_are_summed_up_and_all_of_them_listed_on_demand(tmp_path, run):
    # class 0 has 1 example, class 1 has 2 and so on, up to 50
    np.save("label.npy", np.repeat(np.arange(50), np.arange(1, 51)))
    status, out, _ = run("plan", "arrays", "label.npy", "out")
    assert status == 0
    lines = [line.split() for line in out.splitlines()]
    first = lines.index(["class", "train"])
    assert lines[first + 1 : first + 11] == [[f"{49 - n}", f"{50 - n}"] for n in range(10)]
    assert lines[first + 11] == ["and", "30", "more", "classes"]
    assert lines[first + 12 : first + 22] == [[f"{9 - n}", f"{10 - n}"] for n in range(10)]
    assert lines[first + 22 : first + 28] == [
        ["examples", "of", "a", "class", "train"],
        ["fewest", "1"],
        ["25", "%", "13"],
        ["median", "25"],
        ["75", "%", "38"],
        ["most", "50"],
    ]
    assert run("build", "arrays", "label.npy", "out")[0] == 0
    printed = run("info", "out")[1].splitlines()
    at = printed.index("`tfshards info DATASET --all` lists every class")
    assert printed[at - 28 : at] == out.splitlines()[first : first + 28]
    status, out, _ = run("info", "out", "--all")
    lines = [line.split() for line in out.splitlines()]
    first = lines.index(["class", "train"])
    assert lines[first + 1 : first + 51] == [[f"{n}", f"{n + 1}"] for n in range(50)]
    assert lines[first + 51][0] == "entries:"
    status, _, err = run("info", "out", "--all", "--json")
    assert (status, err) == (
        2,
        "tfshards: --all has no effect with --json, which lists every class; leave it out\n",
    )


def test_without_labels_there_are_no_classes(array_files, run):
    (x,) = array_files(x=np.zeros((4, 2, 3)))
    out = run("build", "arrays", x, "out")[1]
    assert "features: x (raw, float64 2 x 3), key (bytes, bytes)\nno labels\n" in out


def test_info_prints_the_dataset_and_its_rejects(image_folder, run):
    image_folder({"a/1.png": 1, "a/2.png": b"", "a/3.jpg": b"text", "b/4.png": 4, "b/x": b""})
    built = run("build", "images", "photos", "out", "--max-rejected", "1/2")[1]
    assert run("info", "out") == (0, built, "")
    assert built.splitlines()[-5:] == [
        "entries: 5 = 2 accepted + 2 rejected + 1 skipped",
        "  rejected: 1 empty",
        "  rejected: 1 unreadable",
        "  skipped: 1 not an image",
        f"  {next(Path('out').glob('rejected-*')).name} lists the rejected inputs",
    ]


def test_json_is_one_document_on_standard_output(dataset, run):
    text = (dataset / "dataset.json").read_text()
    assert json.loads(run("info", "out", "--json")[1]) == json.loads(text)
    assert json.loads(run("build", "images", "photos", "out", "--shards", 2, "--json")[1]) == json.loads(text)
    assert json.loads(run("verify", "out", "--json")[1]) == []
    assert json.loads(run("verify", "out", "--deep", "--json")[1]) == []


def test_verify_exits_with_0_for_an_intact_dataset_and_with_1_otherwise(dataset, run):
    assert run("verify", "out") == (0, "out: sound\n", "")
    assert run("verify", "out", "--deep") == (0, "out: sound\n", "")
    shard = read_manifest("out").shards[1].path
    data = bytearray((dataset / shard).read_bytes())
    data[40] ^= 1
    (dataset / shard).write_bytes(data)
    problem = f"{shard}: its bytes have changed: the digest differs"
    assert run("verify", "out") == (1, f"{problem}\nout: 1 problem\n", "")
    status, out, _ = run("verify", "out", "--deep", "--json")
    assert status == 1
    assert json.loads(out)[0] == {"place": shard, "message": problem.removeprefix(f"{shard}: ")}
    assert len(json.loads(out)) == 2


def test_verify_prints_each_problem_of_a_manifest(dataset, run):
    (dataset / "dataset.json").write_text('{"format_version": 1}')
    status, out, err = run("verify", "out")
    assert (status, err) == (1, "")
    assert "name: is missing\n" in out
    assert out.endswith(" problems\n")


def test_show_prints_the_example_with_a_key_and_saves_its_image(dataset, small_folder, run):
    status, out, err = run("show", "out", "dog/05.png", "--save", "saved.png")
    assert (status, err) == (0, "wrote the image to saved.png\n")
    assert Path("saved.png").read_bytes() == (small_folder / "dog" / "05.png").read_bytes()
    shard, image, label, key = out.splitlines()
    assert re.fullmatch(
        r"split train, example \d+, record \d of out-train-[0-9a-f]{8}\.tfrecord-0000[01]-of-00002", shard
    )
    assert image == f"image: PNG 4 x 4 (height x width), mode RGB, {Path('saved.png').stat().st_size} B"
    assert (label, key) == ("label: 1 (dog)", "key: dog/05.png")


def test_show_prints_why_a_key_was_rejected(image_folder, run):
    image_folder({"1.png": 1, "caf\udce9\n.jpg": b"text"})
    assert run("build", "images", "photos", "out", "--max-rejected", "50%")[0] == 0
    status, out, err = run("show", "out", "caf\udce9\n.jpg")
    assert (status, out) == (1, "")
    assert err.startswith(r"tfshards: out rejected 'caf\udce9\n.jpg' (unreadable): starts with 74 65 78 74,")
    # the rejects file is for people: without it the dataset is intact, and the key is unknown
    next(Path("out").glob("rejected-*")).unlink()
    assert "out has no example with the key" in run("show", "out", "caf\udce9\n.jpg")[2]
    assert run("show", "out", "1.png")[0] == 0


BEFORE_DISK = {
    "no verb": ([], "tfshards: the following arguments are required: COMMAND; see tfshards --help"),
    "no such verb": (["biuld"], "argument COMMAND: invalid choice: 'biuld' (choose from"),
    "no input": (["build"], "tfshards build: the following arguments are required: KIND"),
    "no such input": (["build", "tables"], "argument KIND: invalid choice: 'tables' (choose from"),
    "no output": (
        ["build", "images", "photos"],
        "tfshards build images: the following arguments are required: DATASET",
    ),
    "an option of Beam": (
        ["build", "images", "photos", "out", "--runner=DirectRunner"],
        "unrecognized arguments: --runner=DirectRunner; options of Apache Beam follow a bare --; see",
    ),
    "another option of Beam": (
        ["append", "photos", "out", "--direct_num_workers", "2"],
        "options of Apache Beam follow a bare --",
    ),
    "one word too many": (["build", "images", "photos", "out", "more"], "unrecognized arguments: more"),
    "no such option": (
        ["build", "images", "photos", "out", "--shrads=3"],
        "tfshards build images: unrecognized arguments: --shrads=3; options of Apache Beam",
    ),
    "an option of arrays": (
        ["build", "images", "photos", "out", "--list", "x"],
        "unrecognized arguments: --list x",
    ),
    "an option of plan": (
        ["build", "images", "photos", "out", "--batch-size=3"],
        "unrecognized arguments: --batch",
    ),
    "an option of build": (
        ["plan", "images", "photos", "out", "--overwrite"],
        "unrecognized arguments: --overwrite",
    ),
    "no such check": (
        ["build", "images", "photos", "out", "--check=all"],
        "argument --check: invalid choice: 'all'",
    ),
    "no such balance": (
        ["build", "images", "photos", "out", "--balance=x"],
        "argument --balance: invalid choice: 'x' (choose from",
    ),
    "no shards": (["build", "images", "photos", "out", "--shards=0"], "--shards 0 must be at least 1"),
    "a word for shards": (
        ["build", "images", "photos", "out", "--shards=many"],
        "--shards many must be a number, or",
    ),
    "less than no shards": (
        ["build", "images", "photos", "out", "--shards=-1"],
        "--shards -1 must be a number, or",
    ),
    "shards twice": (
        ["build", "images", "photos", "out", "--shards=1", "--shards=2"],
        "--shards 2 gives the number of every split a second time; give it once",
    ),
    "shards of a split twice": (
        ["build", "images", "photos", "out", "--shards=a=1", "--shards=a=2"],
        "--shards a=2 gives the number of split 'a' a second time; give it once",
    ),
    "shards of a split without a name": (
        ["build", "images", "photos", "out", "--shards==2"],
        "--shards =2 must be a number, or SPLIT=NUMBER",
    ),
    "no shards of a split": (
        ["build", "images", "photos", "out", "--shards=val=0"],
        "--shards val=0 must be at least",
    ),
    "a size without a unit": (
        ["build", "images", "photos", "out", "--shard-size=1XB"],
        "--shard-size 1XB must be a size",
    ),
    "no size": (
        ["build", "images", "photos", "out", "--shard-size=0"],
        "--shard-size 0 must be at least 1 byte",
    ),
    "number and size": (
        ["build", "images", "photos", "out", "--shards=2", "--shard-size=1MB"],
        "--shards and --shard-size exclude each other: give one",
    ),
    "a split without a ratio": (
        ["build", "images", "photos", "out", "--split=train"],
        "--split train must be NAME=RATIO",
    ),
    "ratios that do not add up": (
        ["build", "images", "photos", "out", "--split=train=0.9"],
        "they must add up to 1",
    ),
    "strata without splits": (
        ["build", "images", "photos", "out", "--stratify"],
        "--stratify requires ratios, such as --split train=0.9 --split val=0.1",
    ),
    "groups without splits": (
        ["build", "images", "photos", "out", "--group-by=folder"],
        "--group-by requires ratios",
    ),
    "an expression that is none": (
        ["build", "images", "photos", "out", "--split=train=1", "--group-by=(a"],
        "--group-by '(a' is not a regular expression: missing )",
    ),
    "a share that is none": (
        ["build", "images", "photos", "out", "--max-rejected=some"],
        "--max-rejected some must be",
    ),
    "too large a share": (
        ["build", "images", "photos", "out", "--max-rejected=101%"],
        "--max-rejected 101% must lie between 0% and 100%\n",
    ),
    "a word for a seed": (
        ["build", "images", "photos", "out", "--seed=x"],
        "argument --seed: invalid int value: 'x'; see",
    ),
    "a negative seed": (
        ["build", "images", "photos", "out", "--seed=-1"],
        "--seed -1 must lie between 0 and 2^63 - 1",
    ),
    "a name that is none": (
        ["build", "images", "photos", "out", "--name=a b"],
        "--name 'a b' must be letters, digits",
    ),
    "an output that names nothing": (
        ["build", "images", "photos", "a b"],
        "the output's name 'a b' must be letters",
    ),
    "an output inside the input": (
        ["build", "images", "photos", "photos/out"],
        "is inside the input photos",
    ),
    "no batch": (["plan", "images", "photos", "out", "--batch-size=0"], "--batch-size 0 must be at least 1"),
    "half a batch": (
        ["plan", "images", "photos", "out", "--batch-size=.5"],
        "argument --batch-size: invalid int value: '.5'",
    ),
    "an array of no kind": (
        ["build", "arrays", "x.txt", "out"],
        "x.txt: must be NAME=FILE.npy, FILE.npy or FILE.npz",
    ),
    "an array twice": (["build", "arrays", "x=a.npy", "b/x.npy", "out"], "two arrays are named 'x'"),
    "a part twice": (["build", "arrays", "x=a.npy", "x=a.npy", "out"], "is a part of 'x' twice"),
    "an option that Beam lacks": (
        ["build", "images", "photos", "out", "--", "--workers=2"],
        "Apache Beam: --workers=2 is not a pipeline option",
    ),
    "no option of this verb": (["info", "out", "--deep"], "tfshards info: unrecognized arguments: --deep"),
    "an option that steers a terminal": (
        ["info", "out", "--\x1b[31m"],
        "arguments: --\\x1b[31m; see tfshards info",
    ),
    "an input without a name": (
        ["build", "images", "", "out"],
        "SOURCE is empty; give . for the working directory",
    ),
    "a table without a name": (["plan", "table", "", "out"], "SOURCE is empty; give . for"),
    "an output without a name": (["build", "arrays", "x.npy", ""], "DATASET is empty; give . for"),
    "a dataset without a name": (
        ["verify", ""],
        "tfshards: DATASET is empty; give . for the working directory",
    ),
    "a share above 100 %": (
        ["build", "images", "photos", "out", "--max-rejected=500%"],
        "--max-rejected 500% must lie between 0% and 100%, such as 5%\n",
    ),
    "a percentage without its sign": (
        ["build", "images", "photos", "out", "--max-rejected=5"],
        "--max-rejected 5 must lie between 0% and 100%",
    ),
    "no such way with duplicates": (
        ["build", "arrays", "x.npy", "out", "--duplicates=merge"],
        "argument --duplicates: invalid choice: 'merge'",
    ),
    "a map and a dataset with one": (
        ["build", "images", "photos", "out", "--class-names=a", "--class-names-from=b"],
        "argument --class-names-from: not allowed with argument --class-names",
    ),
    "options for Beam where it has no part": (
        ["info", "out", "--", "--runner=X"],
        "only build and append accept pipeline options of Apache Beam after --",
    ),
    "no dataset to show": (["show"], "tfshards show: the following arguments are required: DATASET"),
    "no example to show": (["show", "out", "--first=0"], "--first 0 must be at least 1\n"),
    "several images to save": (
        ["show", "out", "--first=2", "--save=x.png"],
        "--save writes one image, but --first 2 prints 2 examples; leave it out\n",
    ),
    "no dataset to verify": (["verify"], "tfshards verify: the following arguments are required: DATASET"),
}

FROM_DISK = {
    "no such folder": (["build", "images", "gone", "out"], "gone does not exist"),
    "a file for a folder": (["build", "images", "photos/cat/00.png", "out"], "00.png is not a folder"),
    "too many shards": (
        ["build", "images", "photos", "out", "--shards=64"],
        "tfshards: --shards 64 exceeds the 13 examples of split 'train'; use at most 13\n",
    ),
    "too many shards for one split": (
        ["build", "images", "photos", "out", "--shards=6", "--split=train=0.8", "--split=val=0.2"],
        "--shards 6 exceeds the 3 examples of split 'val'; use at most 3, for example "
        "--shards train=6 --shards val=3\n",
    ),
    "shards of no split": (
        ["plan", "images", "photos", "out", "--shards=val=2"],
        "names an unknown split; the only split is train",
    ),
    "no such array": (
        ["build", "arrays", "gone.npy", "out"],
        "gone.npy: cannot be read: No such file or directory",
    ),
    "no such list": (
        ["build", "arrays", "x.npy", "out", "--list=y"],
        "--list y is not the name of an array; the arrays are x",
    ),
    "groups of no array": (
        ["plan", "arrays", "x.npy", "out", "--split=a=1", "--group-by=y"],
        "--group-by y is not an array of scalars; these are x",
    ),
    "an output that is a file": (
        ["build", "images", "photos", "x.npy"],
        "x.npy is a file; the last argument, DATASET, must be a folder",
    ),
    "an output of other files": (["build", "images", "photos", "other"], "other holds files but no dataset"),
    "no dataset": (["info", "photos"], "photos is not a dataset: it has no dataset.json."),
    "no directory": (["verify", "gone"], "tfshards: gone does not exist"),
    "a file for a dataset": (
        ["show", "x.npy", "1"],
        "x.npy is a file; name the directory that holds dataset.json",
    ),
    "no map of labels": (
        ["build", "images", "photos", "out", "--class-names=gone.txt"],
        "gone.txt: cannot be read: No such file or directory",
    ),
    "no dataset with labels": (
        ["plan", "images", "photos", "out", "--class-names-from=gone"],
        "gone does not exist",
    ),
    "nothing to compare": (
        ["build", "arrays", "label=x.npy", "out", "--duplicates=drop"],
        "--duplicates compares images, or values other than the label, and the source has neither",
    ),
    "a folder that cannot be made": (
        ["build", "images", "photos", "x.npy/out"],
        "out: cannot be written: Not a dir",
    ),
    "what steers a terminal": (["info", "a\x1b[31m\nb"], "tfshards: a\\x1b[31m\\nb does not exist"),
}


@pytest.mark.parametrize(
    ("arguments", "message", "expected"),
    [pytest.param(*row, 2, id=name) for name, row in BEFORE_DISK.items()]
    + [pytest.param(*row, 1, id=name) for name, row in FROM_DISK.items()],
)
def test_a_mistake_is_reported_in_a_few_lines(
    arguments, message, expected, small_folder, tmp_path, run, contents
):
    np.save("x.npy", np.arange(4))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").touch()
    before = contents(tmp_path)
    status, out, err = run(*arguments)
    assert (status, out) == (expected, "")
    assert message in err
    assert err.startswith("tfshards")
    assert err.endswith("\n")
    assert err.count("\n") <= 3
    assert contents(tmp_path) == before
    assert not (tmp_path / "out").exists()


def test_a_failed_build_is_reported_in_one_to_three_lines(image_folder, run):
    image_folder({"1.png": 1, "2.png": b"text"})
    status, out, err = run("build", "images", "photos", "out")
    assert (status, out) == (1, "")
    lines = err.splitlines()
    assert lines[0].startswith("starting build: ")
    assert lines[1].startswith(
        "tfshards: 1 of 2 inputs is rejected (1 unreadable), more than --max-rejected allows"
    )
    assert re.fullmatch(
        r"out/\.build/[0-9a-f]{8}/rejected\.jsonl lists them; fix them and build again, or .*",
        lines[3],
    )
    assert lines[2].startswith("  '2.png' (unreadable): starts with ")
    assert len(lines) == 4


def test_saving_an_image_of_a_dataset_without_images_is_an_error(array_files, run):
    (x,) = array_files(x=np.arange(4))
    assert run("build", "arrays", x, "out")[0] == 0
    status, out, err = run("show", "out", 2, "--save", "saved.png")
    assert (status, err) == (
        2,
        "tfshards: --save writes an image, but the dataset has no images; leave it out\n",
    )
    assert out == ""
    assert not Path("saved.png").exists()


def test_a_file_that_cannot_be_written_is_named(dataset, run):
    status, out, err = run("show", "out", "cat/00.png", "--save", "nowhere/1.png")
    assert (status, out) == (1, "")
    assert "1.png: the folder nowhere does not exist; name a file for the image in an existing folder" in err
    status, _, err = run("show", "out", "cat/00.png", "--save", 300 * "a")
    assert (status, err) == (1, f"tfshards: {300 * 'a'}: File name too long\n")


def test_help_lists_all_verbs(run):
    status, out, err = run("--help")
    assert (status, err) == (0, "")
    listed = re.findall(r"^    (\w+)(?: |$)", out, re.MULTILINE)
    looks = ["info", "show", "report", "verify", "audit", "diff", "generations", "restore", "prune"]
    derived = ["reshard", "merge", "append", "remove", "relabel"]
    assert listed == ["build", "plan", *looks, "adopt", *derived, "export", "completion"]
    for verb in listed:
        assert run(verb, "--help")[0] == 0
    for kind in ("images", "arrays", "table"):
        status, out, _ = run("build", kind, "--help")
        assert status == 0
        assert "give its pipeline options after a bare --" in " ".join(out.split())


def test_the_version_is_that_of_the_distribution(run):
    assert run("--version") == (0, f"tfshards {version('tfshards')}\n", "")


def test_the_installed_command_is_the_same(tmp_path):
    command = Path(sys.executable).with_name("tfshards")
    done = subprocess.run([command, "info", tmp_path / "gone"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"tfshards: {tmp_path}/gone does not exist\n"


def test_characters_that_the_terminal_cannot_encode_are_escaped(image_folder, tmp_path, quiet_build):
    out = tmp_path / "caf\udce9"
    quiet_build(ImageFolder(image_folder({"猫/1.png": 1})), out, options=Options(name="cats"))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*COMMAND, "info", out], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u732b" in done.stdout
    done = subprocess.run([*COMMAND, "verify", out], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("caf\\udce9: sound\n")


def test_the_locale_does_not_change_the_bytes(image_folder, tmp_path, quiet_build, contents):
    root = image_folder({"ä/ö.png": 1, "ä/bad.png": b"", "caf\udce9/ü.png": 2})
    quiet_build(ImageFolder(root), tmp_path / "utf8" / "out", options=Options(max_rejected=1))
    settings = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    out = tmp_path / "ascii" / "out"
    for arguments in (["build", "images", root, out, "--max-rejected=100%"], ["show", out, "ä/ö.png"]):
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, env={**os.environ, **settings})
        assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "utf8" / "out") == contents(out)


def test_a_build_needs_no_network(tmp_path):
    alone = ["unshare", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("only root can take the loopback device away")
    np.save(tmp_path / "x.npy", np.arange(9))
    command = [*alone, *COMMAND, "build", "arrays", tmp_path / "x.npy", tmp_path / "out", "--shards=3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert read_manifest(tmp_path / "out").num_examples == 9


def test_a_closed_standard_output_is_not_an_error(tmp_path, dataset):
    command = " ".join([*COMMAND, "verify", str(dataset)])
    done = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("rows", [4, 3000])
def test_a_broken_pipe_is_not_reported(rows, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(rows))
    command = [*COMMAND, "plan", "arrays", tmp_path / "x.npy", tmp_path / "out", f"--shards={rows}", "--json"]
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert process.communicate(timeout=60) == (None, "")


def default_interrupt() -> None:
    # a shell that runs tests in the background makes its children ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_an_interrupted_build_exits_with_130_and_can_be_resumed(
    slow_folder, tmp_path, run, quiet_build, contents
):
    arguments = ["build", "images", slow_folder, tmp_path / "out", "--shards=8", "--max-rejected=100%"]
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_interrupt,
    )
    deadline = time.monotonic() + 120
    while not any((tmp_path / "out").glob(f"{AREA_NAME}/*/first/*.done")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "interrupted; run the same command to resume"
    assert "Traceback" not in err
    status, _, err = run(*arguments)
    assert status == 0
    assert re.match(r"resuming the build: [1-8] of 8 shards finished\n", err)
    whole = tmp_path / "whole" / "out"
    quiet_build(ImageFolder(slow_folder), whole, shards=8, options=Options(max_rejected=1))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole" / "out")


def test_progress_is_a_bar_on_a_terminal(slow_folder, tmp_path):
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    command = [
        *COMMAND,
        "build",
        "images",
        slow_folder,
        tmp_path / "out",
        "--shards=8",
        "--max-rejected=100%",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    written = bytearray()
    try:
        while data := os.read(leader, 4096):
            written += data
    except OSError:
        # the other end of the terminal is closed: the command has ended
        pass
    os.close(leader)
    assert process.wait(60) == 0
    text = written.decode()
    # progress of the two layouts: of 18 images, and of those in the shards that change
    first, _, final = text.partition("balancing after rejects")
    percentages = [int(number) for number in re.findall(r"out: +(\d+)%", first)]
    assert len(set(percentages)) >= 3, text
    assert percentages == sorted(percentages)
    assert percentages[-1] == 100
    assert re.search(r"18\.0/18\.0 .*examples/s.*, \d\.\d MiB\]", first), text
    assert "100%" in final


def test_progress_is_plain_lines_without_a_terminal(tmp_path, run, monkeypatch):
    monkeypatch.setattr(bars, "LINE_SECONDS", 0.0)
    np.save("x.npy", np.random.default_rng(0).integers(0, 256, (6000, 1000), dtype=np.uint8))
    status, _, err = run("build", "arrays", "x.npy", "out", "--shards", 3)
    assert status == 0
    lines = err.splitlines()[1:]
    assert lines
    what = r"out: [\d,]+ of 6,000 examples, \d+(\.\d)? (B|[KM]iB), [\d,]+ examples/s"
    assert [
        line for line in lines if not re.fullmatch(what + ", (\\d+ s left|time left unknown)", line)
    ] == []
    assert len({line.split()[1] for line in lines}) > 1, "the number of examples does not grow"


def test_building_arrays_has_no_option_for_rejects(run, array_files):
    array_files(x=np.arange(4))
    status, _, err = run("plan", "arrays", "x.npy", "out", "--max-rejected", "5%")
    assert status == 2
    assert "unrecognized arguments: --max-rejected" in err


def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_traceback():
    code = """
import sys, tfshards
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "tfshards.schemas":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
tfshards._command()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ninterrupted\n")


def test_the_function_of_the_installed_command_runs_it():
    code = "import tfshards; tfshards._command()"
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tfshards ")
