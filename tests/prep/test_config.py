"""Options in a TOML file: every flag can be a key, the command line wins, mistakes name file and key."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.prep.test_flags import parsers
from tfshards.prep.cli import main as cli
from tfshards.prep.cli.option_files import arguments_of, expand, keys_of
from tfshards.prep.cli.parser import make_parser
from tfshards.prep.cli.verbs import VERBS
from tfshards.schemas import read_manifest


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Return a function that writes ``build.toml``, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return lambda text: Path("build.toml").write_text(text)


def expanded(line):
    return expand(line.split(), make_parser(VERBS)).arguments


def test_every_flag_of_every_verb_is_a_key():
    for key, action in (found for parser in parsers().values() for found in keys_of(parser).items()):
        choice = action.choices[0] if action.choices else 3
        value = True if action.nargs == 0 else choice
        arguments = arguments_of(action, value, key)
        flag = f"--{key}" if action.option_strings else None
        expected = [flag] if value is True else [f"{flag}={choice}" if flag else str(choice)]
        assert arguments == expected, action
        if action.nargs == 0:
            assert arguments_of(action, False, key) == []


def test_a_build_takes_everything_from_the_file_and_plan_reads_the_same(small_folder, config, capsys):
    config(
        """
        kind = "images"
        source = "photos"
        dataset = "data/pets"
        split = {train = 0.75, val = "1/4"}
        stratify = true
        seed = 7
        exclude = ["**/12.png", "**/11.png"]
        checksum = true
        batch-size = 4
        [shards]
        train = 3
        val = 2
        """
    )
    assert cli.main(["plan", "--config", "build.toml"]) == 0
    assert "steps per epoch" in capsys.readouterr().out
    assert cli.main(["build", "--config", "build.toml"]) == 0
    made = read_manifest("data/pets")
    assert made.options["shards"] == {"train": 3, "val": 2}
    assert made.options["splits"] == {"train": "3/4", "val": "1/4"}
    assert made.options["exclude"] == ["**/11.png", "**/12.png"]
    assert (made.options["seed"], made.options["stratify"], made.num_examples) == (7, True, 11)
    other = "build --config=build.toml photos data/more --seed 8 --shards 1 --split train=1"
    assert cli.main(other.split()) == 0
    made = read_manifest("data/more")
    assert (made.options["seed"], made.options["shards"]) == (8, {"train": 1})


@pytest.mark.parametrize(
    ("text", "line", "arguments"),
    [
        ("seed = 1", "build images a b --config build.toml", ["--seed=1"]),
        ("seed = 1", "build --config build.toml images a b", ["--seed=1"]),
        ("seed = 1", "build images a b --config build.toml --seed 2", []),
        ("shards = [3, 'val=1']", "build images a b --config build.toml", ["--shards=3", "--shards=val=1"]),
        ("shards = 3", "build images a b --config build.toml --shard-size 1MiB", []),
        ("class-names = 'a.txt'", "plan images a b --config build.toml --class-names-from c", []),
        ("splits = ''", "build images a b --config build.toml", ["--splits="]),
        ("splits = {train = 'A'}", "build images a b --config build.toml", ["--splits=train=A"]),
        ("resize = '-5'", "build images a b --config build.toml", ["--resize=-5"]),
        ("deep = true", "verify a --config build.toml", ["--deep"]),
        ("deep = false", "verify a --config build.toml", []),
    ],
)
def test_flags_on_the_command_line_replace_those_of_the_file(text, line, arguments, config):
    config(text)
    given = line.replace("--config build.toml images", "images --config=build.toml")
    assert [text for text in expanded(line) if text not in given.split()] == arguments


@pytest.mark.parametrize(
    ("text", "line", "paths"),
    [
        ("source = 'a'\ndataset = 'b'", "build images --config build.toml", ["a", "b"]),
        ("source = 'a'\ndataset = 'b'", "build images c d --config build.toml", ["c", "d"]),
        ("source = 'a'", "build images --config build.toml d", ["a", "d"]),
        ("dataset = 'b'", "build images --config build.toml c", ["c", "b"]),
        ("source = ['x.npy', 'y.npy']", "build arrays --config build.toml d", ["x.npy", "y.npy", "d"]),
        ("kind = 'arrays'\nsource = 'x.npy'", "build --config build.toml d", ["x.npy", "d"]),
    ],
)
def test_paths_come_from_the_file_where_the_command_line_lacks_them(text, line, paths, config):
    config(text)
    args = make_parser(VERBS).parse_args(expanded(line))
    source = args.source if isinstance(args.source, list) else [args.source]
    assert [*source, args.dataset] == paths


def test_one_path_in_addition_to_those_of_the_file_is_not_enough(config, capsys):
    config("kind = 'images'\nsource = 'a'\ndataset = 'b'")
    assert cli.main(["build", "images", "--config", "build.toml", "c"]) == 2
    assert "the following arguments are required: DATASET" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resiez = 'short=8'", 'build.toml: unknown key "resiez"; the keys are the names of flags'),
        ("config = 'a'", 'build.toml: unknown key "config"; the keys are the names of flags'),
        ("stratify = 1", "build.toml: stratify is 1, must be true or false"),
        ("seed = 'x'", "--help (--seed is from build.toml)"),
        ("seed = true", "build.toml: seed is true, must be text or a number"),
        ("resize = [1]", "build.toml: resize is [1], must be text or a number"),
        ("include = {a = 1}", 'build.toml: include is {"a": 1}, must be text or a number, a list of these'),
        (
            "shards = true",
            "build.toml: shards is true, must be text or a number, a list of these, or a table",
        ),
        ("shards = {val = []}", 'build.toml: shards is {"val": []}, must be text or a number, a list of th'),
        ("duplicates = 'x'", "argument --duplicates: invalid choice: 'x' (choose from"),
        ("shards = 0", "--shards 0 must be at least 1 (--shards is from build.toml)"),
        ("resize = 'x'", "(--resize is from build.toml)"),
        ("seed = ", "build.toml is not valid TOML: Invalid value (at "),
    ],
)
def test_a_mistake_in_the_file_is_named(text, message, small_folder, config, capsys):
    config(text)
    assert cli.main(["build", "images", "photos", "out", "--config", "build.toml"]) == 2
    printed = capsys.readouterr().err
    assert message in printed, printed
    assert printed.startswith("tfshards")


@pytest.mark.parametrize(
    ("line", "text", "status", "message"),
    [
        ("build images a b --config no.toml", "", 1, "no.toml: cannot be read: No such file or directory"),
        (
            "build --config build.toml a b",
            "",
            2,
            "has no key kind; give it, or KIND on the command line: one",
        ),
        ("build --config build.toml a b", "kind = 'image'", 2, "kind is 'image', must be one of images, "),
        ("build --config build.toml a b", "kind = []", 2, "kind is [], must be one of images, "),
        ("build a b", "", 2, "invalid choice: 'a'"),
    ],
)
def test_a_file_that_says_too_little_is_reported(line, text, status, message, config, capsys):
    config(text)
    assert cli.main(line.split()) == status
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_text_is_reported(tmp_path, capsys):
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff")
    assert cli.main(["info", os.fspath(tmp_path), "--config", os.fspath(path)]) == 2
    assert "is not valid TOML: 'utf-8' codec" in capsys.readouterr().err


def test_the_command_line_of_arrays_may_begin_with_options(config):
    np.save("x.npy", np.arange(4))
    config("list = 'x'\nsource = 'x.npy'")
    assert cli.main(["build", "arrays", "--config", "build.toml", "out"]) == 0
    assert read_manifest("out").options["lists"] == ["x"]
