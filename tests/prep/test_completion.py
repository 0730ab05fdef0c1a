"""``tfshards completion`` prints scripts with which the shells themselves complete commands."""

from __future__ import annotations

import os
import pty
import select
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
    "tfshards build images photos --balance by": "bytes",
    "tfshards build images photos --checks": "--checksum",
    "tfshards build table rows.csv --from yo": "yolo",
    "tfshards build --config build.toml --resi": "--resize",
    "tfshards plan --from data --bala": "--balance",
    "tfshards info dat": "data",
    "tfshards info --config buil": "build.toml",
    "tfshards completion zs": "zsh",
}


@pytest.fixture
def script(tmp_path, monkeypatch, capsys):
    """Return a function that writes the script of a shell, in a folder with files to complete."""
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "data"):
        Path(name).mkdir()
    Path("build.toml").touch()

    def write(shell):
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        assert cli.main(["completion", shell]) == 0
        Path("script").write_text(capsys.readouterr().out)

    return write


def test_bash_completes_commands_options_choices_and_paths(script):
    script("bash")
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


def test_fish_completes_the_same(script):
    script("fish")
    program = "source ./script; while read line; complete -C $line | head -1; end"
    done = subprocess.run(
        ["fish", "--no-config", "-c", program],
        input="\n".join([*CASES, ""]),
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": os.getcwd()},
    )
    found = [line.partition("\t")[0].rstrip("/") for line in done.stdout.splitlines()]
    assert found == [*CASES.values()], done.stderr


def test_zsh_completes_the_same(script):
    script("zsh")
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], os.environ | {"TERM": "dumb", "PS1": "> "})
    try:
        os.write(terminal, b"mkdir zfunc; cp script zfunc/_tfshards; fpath+=$PWD/zfunc\n")
        os.write(terminal, b"autoload -U compinit; compinit -u -D; echo rea''dy\n")
        printed(terminal, until="ready")
        for line, completed in CASES.items():
            os.write(terminal, f"{line}\t".encode())
            printed(terminal, until=f"{line.rpartition(' ')[0]} {completed}")
            os.write(terminal, b"\x15")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def printed(terminal, until):
    """Read what the terminal shows until a text appears."""
    shown = ""
    while until not in shown:
        assert select.select([terminal], [], [], 20)[0], f"{until!r} is not in {shown!r}"
        shown += os.read(terminal, 4096).decode(errors="replace")


def test_an_unknown_shell_is_refused(capsys):
    assert cli.main(["completion", "csh"]) == 2
    assert "invalid choice: 'csh' (choose from" in capsys.readouterr().err
