"""Options in a TOML file: every flag can be a key, the command line wins, mistakes are named."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.surface.command import refused, run, run_json
from tests.surface.lines import LINES, SWITCH
from tfshards.schemas import read_manifest


def config(text, name="c.toml"):
    Path(name).write_text(text)
    return f"--config {name}"


@pytest.mark.parametrize("line", LINES, ids=[line.verb for line in LINES])
def test_every_flag_of_a_verb_is_a_key_and_a_wrong_value_is_named(line, own):
    words = [*line.verb.split(), *line.paths.replace("BUILD", "x").split(), *line.options.split()]
    for name, flag in line.own_flags().items():
        key = name.removeprefix("--").replace("-", "_")
        if name in ("--config", "--json") or not flag.wrong or name in line.options:
            continue
        value = '"x"' if flag is SWITCH else f"'{flag.wrong[0]}'"
        for spelled in (key, key.replace("_", "-")):
            message = refused([*words, *config(f"{spelled} = {value}").split()], status=flag.status)
            assert flag.named in message
            assert spelled in message or key in message or flag.named, message
    refused([*words, *config("resiez = 1").split()], ["c.toml", '"resiez"'])
    refused([*words, *config("verbos = true").split()], "was verbose meant?")


def test_a_build_takes_its_options_from_the_file_and_plan_reads_the_same(own):
    given = config(
        """
        splits = {train = 0.5, val = "1/2"}
        stratify = true
        seed = 7
        exclude = ["**/7.png", "**/6.png"]
        checksum = true
        channels = 1
        name = "cats"
        max-rejected = "50%"
        [shards]
        train = 3
        val = 2
        """
    )
    assert run_json(f"plan images photos sets/pets {given}")[1]["splits"].keys() == {"train", "val"}
    quiet = config("quiet = true\njobs = 1\n" + Path("c.toml").read_text())
    assert run(f"build images photos sets/pets {quiet}")[::2] == (0, "")
    made = read_manifest("sets/pets")
    assert made.options["shards"] == {"train": 3, "val": 2}
    assert made.options["splits"] == {"train": "1/2", "val": "1/2"}
    assert made.options["exclude"] == ["**/6.png", "**/7.png"]
    assert (made.options["seed"], made.options["stratify"], made.num_examples) == (7, True, 6)
    assert (made.name, made.options["channels"], made.schema.features[0].shape[-1]) == ("cats", 1, 1)
    # flags on the command line replace those of the file
    more = "--seed 8 --shards 1 --splits train=1 --exclude **/5.png"
    assert run(f"build images photos sets/more {given} {more}").status == 0
    made = read_manifest("sets/more")
    assert (made.options["seed"], made.options["shards"]) == (8, {"train": 1})
    assert (made.options["exclude"], made.num_examples) == (["**/5.png"], 7)


def test_what_a_verb_requires_may_be_in_the_file(own):
    for line, text in (("export data exported", "to = 'parquet'"), ("remove data", "keys = 'keys'")):
        assert run(f"{line} {config(text)}").status == 0


@pytest.mark.parametrize(
    ("text", "line", "options"),
    [
        ("seed = 1", "", {"seed": 1}),
        ("seed = 1", "--seed 2", {"seed": 2}),
        ("shards = ['train=3']", "", {"shards": {"train": 3}}),
        ("stratify = false", "", {"stratify": False}),
        ("exclude = '**/0.png'", "", {"exclude": ["**/0.png"]}),
        ("class-names = 'gone'", "--class-names data", {}),
        ("include = ['a', 'b']", "--include **", {"include": ["**"]}),
        ("include = []\nsplit-folders = {}", "", {"split_folders": {}}),
    ],
)  # fmt: skip
def test_a_flag_replaces_what_the_file_says_of_the_same(text, line, options, own):
    for before, after in ((config(text), line), (line, config(text))):
        shutil.rmtree("new", ignore_errors=True)
        ended = run(f"build images photos new {before} {after}")
        assert ended.status == 0, ended
        assert options.items() <= read_manifest("new").options.items()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("config = 'a'", ["c.toml", '"config"']),
        ("stratify = 1", ["c.toml: stratify", "1"]),
        ("seed = true", ["c.toml: seed", "true"]),
        ("resize = [1]", "resize='1'"),
        ("seed = [1, 2]", ["c.toml: seed", "1, 2"]),
        ("seed = []", "c.toml: seed"),
        ("include = {a = 1}", ["c.toml: include", '{"a": 1}']),
        ("shards = {val = []}", ["c.toml: shards", '{"val": []}']),
        ("seed = ", "c.toml"),
        ("kind = 'images'", ["c.toml", '"kind"', "splits"]),
        ("depth = 12", ["c.toml", "depth", "12"]),
        ("roles = {a = 'label'}", ["c.toml", '"roles"']),
    ],
)
def test_a_mistake_in_the_file_is_named(text, names, own):
    refused(f"build images photos new {config(text)}", names)


def test_a_file_that_is_not_text_is_refused(own):
    Path("c.toml").write_bytes(b"\xff")
    refused("info data --config c.toml", "c.toml")
    Path("c.toml").write_bytes(b"json = false")
    refused("build images photos new --config photos", "photos")
    refused(f"info data {config('# ' * (1 << 20))}", ["c.toml", "1048576"])


# what is typed before Tab, and what the shell offers
TYPED = {
    "tfshards ver": "verify",
    "tfshards build im": "images",
    "tfshards build images pho": "photos",
    "tfshards build images photos --compression gz": "gzip",
    "tfshards build images photos --checks": "--checksum",
    "tfshards build yol": "yolo",
    "tfshards build images --config c.toml --resi": "--resize",
    "tfshards info numb": "numbers",
    "tfshards info --config c.to": "c.toml",
    "tfshards completion zs": "zsh",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_options_choices_and_paths(own):
    config("")
    Path("script").write_text(run("completion bash").out)
    program = """
        source ./script
        complete -p tfshards
        while read -r line; do
            COMP_WORDS=($line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
            _shtab_tfshards tfshards "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            echo "${COMPREPLY[*]}"
        done
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", program], input="\n".join([*TYPED, ""]), capture_output=True, text=True
    )
    first, *found = done.stdout.splitlines()
    assert first.endswith("-F _shtab_tfshards tfshards"), done.stderr
    assert found == [*TYPED.values()], done.stderr
