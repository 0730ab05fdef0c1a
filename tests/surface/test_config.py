"""Options in a TOML file: every flag can be a key, the command line wins, mistakes name file and key."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.surface.command import refused, run, run_json
from tests.surface.lines import LINES, SWITCH
from tfshards.schemas import read_manifest

CONFIGURED = [line for line in LINES if "--config" in line.flags]


def config(text, name="c.toml"):
    Path(name).write_text(text)
    return f"--config {name}"


@pytest.mark.parametrize("line", CONFIGURED, ids=[line.verb for line in CONFIGURED])
def test_every_flag_of_a_verb_is_a_key_and_a_wrong_value_names_file_and_flag(line, own):
    words = [*line.verb.split(), *line.paths.replace("BUILD", "x").split(), *line.options.split()]
    for name, flag in line.own_flags().items():
        key = name.removeprefix("--")
        if name == "--config" or not flag.wrong or name in line.options or key == "json":
            continue
        value = '"x"' if flag is SWITCH else f"'{flag.wrong[0]}'"
        given = config(f"{key} = {value}").split()
        message = refused([*words, *given], status=flag.status)
        assert (key if flag is SWITCH else flag.named or name) in message
        assert "c.toml" in message or flag.named, message
    refused([*words, *config("resiez = 1").split()], ["c.toml", '"resiez"'])


def test_a_build_takes_everything_from_the_file_and_plan_reads_the_same(own):
    given = config(
        """
        kind = "images"
        source = "photos"
        dataset = "sets/pets"
        split = {train = 0.5, val = "1/2"}
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
    assert run_json(f"plan {given}")[1]["splits"].keys() == {"train", "val"}
    assert run(f"build {given}").status == 0
    made = read_manifest("sets/pets")
    assert made.options["shards"] == {"train": 3, "val": 2}
    assert made.options["splits"] == {"train": "1/2", "val": "1/2"}
    assert made.options["exclude"] == ["**/6.png", "**/7.png"]
    assert (made.options["seed"], made.options["stratify"], made.num_examples) == (7, True, 6)
    assert (made.name, made.options["channels"], made.schema.features[0].shape[-1]) == ("cats", 1, 1)
    # flags and paths on the command line replace those of the file
    assert (
        run(f"build {given} photos sets/more --seed 8 --shards 1 --split train=1 --exclude **/5.png").status
        == 0
    )
    made = read_manifest("sets/more")
    assert (made.options["seed"], made.options["shards"]) == (8, {"train": 1})
    assert (made.options["exclude"], made.num_examples) == (["**/5.png"], 7)


@pytest.mark.parametrize(
    ("text", "line", "options"),
    [
        ("seed = 1", "", {"seed": 1}),
        ("seed = 1", "--seed 2", {"seed": 2}),
        ("shards = 3", "--shard-size 1MiB", {"shards": {"train": 1}}),
        ("shard-size = '1MiB'", "--shards 3", {"shards": {"train": 3}}),
        ("shards = ['train=3']", "", {"shards": {"train": 3}}),
        ("stratify = false", "", {"stratify": False}),
        ("exclude = '**/0.png'", "", {"exclude": ["**/0.png"]}),
        ("class-names = 'gone'", "--class-names-from data", {}),
    ],
)  # fmt: skip
def test_a_flag_replaces_what_the_file_says_of_the_same(text, line, options, own):
    for before, after in ((config(text), line), (line, config(text))):
        shutil.rmtree("new", ignore_errors=True)
        ended = run(f"build images photos new {before} {after}")
        assert ended.status == 0, ended
        assert options.items() <= read_manifest("new").options.items()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("source = 'photos'\ndataset = 'new'", "build images FILE"),
        ("source = 'gone'\ndataset = 'other'", "build images photos new FILE"),
        ("source = 'photos'", "build images FILE new"),
        ("dataset = 'new'", "build images photos FILE"),
        ("source = ['x.npy', 'more=x.npy']", "build arrays FILE new"),
        ("column = 'x=list'\nkind = 'arrays'\nsource = 'x.npy'", "build FILE new"),
    ],
)
def test_paths_come_from_the_file_where_the_command_line_lacks_them(text, line, own):
    assert run(line.replace("FILE", config(text))).status == 0
    assert read_manifest("new").num_examples == (12 if "x.npy" in text else 8)


@pytest.mark.parametrize(
    ("text", "line", "names", "code"),
    [
        ("config = 'a'", "build images photos new", ["c.toml", '"config"'], "config-key-unknown"),
        ("stratify = 1", "build images photos new", ["c.toml: stratify", "1"], "config-value"),
        ("seed = true", "build images photos new", ["c.toml: seed", "true"], "config-value"),
        ("resize = [1]", "build images photos new", ["c.toml: resize", "[1]"], "config-value"),
        ("include = {a = 1}", "build images photos new", ["c.toml: include", '{"a": 1}'], "config-value"),
        ("shards = {val = []}", "build images photos new", ["c.toml: shards", '{"val": []}'], "config-value"),
        ("seed = ", "build images photos new", "c.toml", "config-not-toml"),
        *(
            pytest.param(text, "build images photos new", "c.toml", None, id=name)
            for name, text in {
                "a list in many lists": f"seed = {'[' * 300}{']' * 300}",
                "a list in more lists": f"seed = {'[' * 50_000}{']' * 50_000}",
                "a key of many parts": f"a{'.a' * 50_000} = 1",
            }.items()
        ),
        ("", "build photos new", ["c.toml", "kind", "images"], "config-no-kind"),
        ("kind = 'image'", "build photos new", ["c.toml", "'image'", "images"], "config-kind"),
        ("kind = []", "build photos new", ["c.toml", "[]"], "config-kind"),
        ("kind = 'images'\nsource = 'photos'\ndataset = 'b'", "build images photos", "DATASET", "usage"),
    ],
)
def test_a_mistake_in_the_file_is_named(text, line, names, code, own):
    refused(f"{line} {config(text)}", names, code=code)


def test_a_file_that_is_not_text_is_refused(own):
    Path("c.toml").write_bytes(b"\xff")
    refused("info data --config c.toml", "c.toml", code="config-not-toml")
    refused("build images photos new --config photos", "photos", status=1, code="unreadable")
    refused(f"info data {config('# ' * (1 << 20))}", ["c.toml", "1048576"], status=1, code="unreadable")


# what is typed before Tab, and what the shell offers
TYPED = {
    "tfshards ver": "verify",
    "tfshards build im": "images",
    "tfshards build images pho": "photos",
    "tfshards build images photos --compression gz": "gzip",
    "tfshards build images photos --checks": "--checksum",
    "tfshards build yol": "yolo",
    "tfshards build --config c.toml --resi": "--resize",
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
