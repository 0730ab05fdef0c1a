"""Runs command lines of tfshards; the only place of these tests that knows how the command is made."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from tfshards.command import VERBS
from tfshards.prep.cli.main import main as of_verbs

COMMAND = [sys.executable, "-m", "tfshards"]
NAMES = [*VERBS]
main = partial(of_verbs, verbs=VERBS)
VERSION = cache(version)
ERROR_KEYS = ["kind", "code", "message", "path"]


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def words(line: str | list[str]) -> list[str]:
    """Return the words of a command line, which has no quotation marks."""
    return line.split() if isinstance(line, str) else [*map(str, line)]


def run(line: str | list[str]) -> Ended:
    """Run a command line in this process, as ``tfshards LINE`` runs it."""
    out, err = io.StringIO(), io.StringIO()
    # The parser searches the disk for translations and for its version, which takes half of the time.
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch("argparse._", str),
        patch("tfshards.prep.cli.parser.version", VERSION),
    ):
        status = main(words(line))
    return Ended(status, out.getvalue(), err.getvalue())


def run_alone(line: str | list[str], **options: object) -> Ended:
    """Run a command line in a process of its own."""
    given = {"capture_output": True, "text": True, "timeout": 120, **options}
    done = subprocess.run([*COMMAND, *words(line)], **given)
    return Ended(done.returncode, done.stdout, done.stderr)


def run_json(line: str | list[str]) -> tuple[Ended, dict[str, object]]:
    """Run a command line with ``--json``; return also the one document that it prints."""
    given = words(line)
    end = given.index("--") if "--" in given else len(given)
    ended = run([*given[:end], "--json", *given[end:]])
    return ended, json.loads(ended.out)


def snapshot(*roots: str | Path) -> dict[str, object]:
    """Return the state of every file, link and folder below some folders: size, time, inode and target."""
    found: dict[str, object] = {}
    for root in roots:
        for folder, names, files in os.walk(root):
            for path in (os.path.join(folder, name) for name in [*names, *files]):
                state = os.lstat(path)
                target = os.readlink(path) if os.path.islink(path) else ""
                is_folder = stat.S_ISDIR(state.st_mode)
                # a lock changes the time of a folder
                time = 0 if is_folder else state.st_mtime_ns
                found[path] = (state.st_mode, is_folder or state.st_size, time, state.st_ino, target)
    return found


def refused(
    line: str | list[str], names: str | Sequence[str] = (), *, status: int = 2, code: str = ""
) -> str:
    """Check that a command line is refused: briefly, and on standard error.

    That no file changes is checked here if there is a code, and else by the fixture ``here``.

    Args:
        line: the command line.
        names: what the message has to name: flags, paths, numbers.
        status: its exit status.
        code: the code that a program reads with ``--json``; "" to run it without.

    Returns:
        The message.
    """
    # files of the checkout change while other tests run
    assert not code or not os.path.exists("pyproject.toml"), "run it in a folder of the test"
    before = snapshot(".") if code else None
    ended, is_plain = (run_json(line)[0], False) if code else (run(line), True)
    assert ended.status == status, ended
    assert ended.err.startswith("tfshards"), ended
    assert 1 <= ended.err.count("\n") <= 3, ended
    assert ended.err.endswith("\n")
    assert all(text.isprintable() for text in ended.err.split("\n")), ended
    assert "Traceback" not in ended.err
    for name in [names] if isinstance(names, str) else names:
        # argparse names flags, and functions their parameters
        parameter = f"{name[2:].replace('-', '_')}=" if name.startswith("--") else name
        assert name in ended.err or parameter in ended.err, ended
    if is_plain:
        assert ended.out == ""
    else:
        error = json.loads(ended.out)
        assert [*error] == ERROR_KEYS
        assert error["code"] == code, error
        assert error["message"]
        assert error["message"] in ended.err
        assert (error["kind"] == "options") == (status == 2), error
    assert not code or snapshot(".") == before, line
    return ended.err
