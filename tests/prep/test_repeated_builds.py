"""``build --from DATASET`` writes the same bytes as the build of that dataset, from the same source."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.tables import mostly_nightly
from tests.test_recipes import HOW_TO, RECIPES, commands, sections
from tfshards.prep import build
from tfshards.prep.cli import main as cli
from tfshards.prep.cli.parser import make_parser
from tfshards.prep.cli.verbs import VERBS
from tfshards.schemas import read_manifest

OF_IMAGES = {
    "resized and stratified": "--resize short=6 --split train=2/3 --split val=1/3 --stratify --seed 5",
    "converted": "--channels 1 --format jpeg --jpeg-quality 80 --max-pixels 5000 --shards 3",
    "chosen": "--exclude **/1*.png --include **/*.png --balance bytes --compression gzip --shards 2",
    "every folder is a class": "--splits= --follow-links --duplicates drop --name pets",
    "grouped": "--split train=0.5 --split val=0.5 --group-by ^.*/(\\d)",
    "split folders": "--splits train=cat,test=dog",
}


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(build.__wrapped__.__kwdefaults__, "engine", "local")


def run(*arguments):
    assert cli.main([*arguments]) == 0, arguments


@pytest.mark.parametrize("options", OF_IMAGES.values(), ids=OF_IMAGES)
def test_a_folder_of_images_is_built_again(options, small_folder, contents, capsys):
    run("build", "images", "photos", "data/pets", *options.split())
    capsys.readouterr()
    run("build", "--from", "data/pets", "photos", "again")
    assert contents(Path("again")) == contents(Path("data/pets"))
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("options of data/pets: --")
    for word in ("--resize short=6", "--jpeg-quality 80", "--balance bytes", "--name pets"):
        if word in options:
            assert word in line


def builds(question):
    return [words for words in commands(sections(HOW_TO)[question]) if words[0] == "build"]


@pytest.mark.parametrize(
    "question",
    mostly_nightly(
        [question for question, (_, made) in RECIPES.items() if made and builds(question)],
        ["How do I build from arrays?", "How do I build from COCO or YOLO?"],
    ),
)
def test_the_builds_of_a_recipe_are_repeated(question, contents):
    RECIPES[question][0]()
    for arguments in builds(question):
        run(*arguments, "--overwrite")
        args = make_parser(VERBS).parse_args(arguments)
        source = args.source if isinstance(args.source, list) else [args.source]
        root = [] if getattr(args, "root", None) is None else ["--root", args.root]
        run("build", "--from", args.dataset, *source, "again", "--overwrite", *root)
        run("prune", "again")
        run("prune", args.dataset)
        assert contents(Path("again")) == contents(Path(args.dataset)), arguments


def test_a_table_without_a_column_and_with_named_roles_is_repeated(small_folder, contents):
    rows = [
        {"picture": f"{p.parent.name}/{p.name}", "kind": p.parent.name, "note": "x", "fold": "ab"[n % 2]}
        for n, p in enumerate(sorted(small_folder.glob("*/*.png")))
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    roles = "--image picture --label kind --split-column fold --drop note --root photos"
    options = roles.split()
    run("build", "table", "rows.jsonl", "data/rows", *options)
    run("build", "--from", "data/rows", "rows.jsonl", "again", "--root", "photos")
    assert contents(Path("again")) == contents(Path("data/rows"))
    assert "note" not in read_manifest("again").schema.names


def test_flags_replace_what_the_manifest_records(small_folder, capsys):
    run("build", "images", "photos", "data/pets", "--resize", "short=6", "--shards", "5", "--seed", "4")
    Path("c.toml").write_text("resize = 'short=3'\nseed = 9")
    line = "build --from data/pets photos new --shard-size 1KiB --seed 5 --config c.toml"
    run(*line.split())
    options = read_manifest("new").options
    assert (options["resize"], options["seed"]) == ("short=3", 5)
    assert options["shards"] == {"train": 3}
    Path("names.txt").write_text("dog\ncat\n")
    run(*["plan", "--from", "data/pets", "photos", "other", "--class-names", "names.txt"])
    assert "--class-names-from" not in capsys.readouterr().err.splitlines()[-1]


def test_the_defaults_and_later_appends_are_reported(capsys):
    np.save("x.npy", np.arange(6.0))
    run("build", "arrays", "x.npy", "x", "--shards", "1")
    np.save("x.npy", np.arange(9.0))
    run("append", "x.npy", "x")
    capsys.readouterr()
    run("plan", "--from", "x", "x.npy", "y")
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("options of x; of its first build, without 1 appends: --")


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("build --from none photos out", 1, "none does not exist"),
        ("build --from data/other photos out", 1, "data/other was made by reshard, so its manifest rec"),
        ("build --from data/pets images photos out", 2, "unrecognized arguments: out"),
        ("plan images photos out --from=data/pets", 2, "unrecognized arguments: --from=data/pets"),
        ("build --from data/pets", 2, "the following arguments are required: SOURCE, DATASET"),
        ("build --from data/pets photos out --shards dog=1", 1, "--shards dog=1 names an unknown split"),
        (
            "build --from data/pets photos out --split a=0.5 --split b=0.5",
            1,
            "names an unknown split; the splits are a, b (--shards is from data/pets)",
        ),
    ],
)
def test_what_cannot_be_repeated_is_reported(line, status, message, small_folder, capsys):
    run("build", "images", "photos", "data/pets")
    run("reshard", "data/pets", "data/other", "--shards", "2")
    capsys.readouterr()
    assert cli.main(line.split()) == status
    assert message in capsys.readouterr().err
