"""``tfshards completion`` prints scripts with which the shells themselves complete commands."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tfshards.prep.cli import main as cli

# what is typed before Tab -> what the shells offer, among other things
CASES = {
    "tfshards ver": "verify",
    "tfshards build im": "images",
    "tfshards build images pho": "photos",
    "tfshards build images photos --compression gz": "gzip",
    "tfshards build images photos --checks": "--checksum",
    "tfshards build table rows.csv --from yo": "yolo",
    "tfshards build --config build.toml --resi": "--resize",
    "tfshards info dat": "data",
    "tfshards info --config buil": "build.toml",
    "tfshards completion zs": "zsh",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_options_choices_and_paths(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "data"):
        Path(name).mkdir()
    Path("build.toml").touch()
    assert cli.main(["completion", "bash"]) == 0
    Path("script").write_text(capsys.readouterr().out)
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
        ["bash", "--norc", "-c", program], input="\n".join([*CASES, ""]), capture_output=True, text=True
    )
    first, *found = done.stdout.splitlines()
    assert first.endswith("-F _shtab_tfshards tfshards"), done.stderr
    assert found == [*CASES.values()], done.stderr


def test_an_unknown_shell_is_refused(capsys):
    assert cli.main(["completion", "csh"]) == 2
    assert "invalid choice: 'csh' (choose from" in capsys.readouterr().err
