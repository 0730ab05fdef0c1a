"""Reads and runs the code of README.md and docs/*.md.

A comment ``<!-- run: NAME WORDS -->`` below a heading runs the blocks of that section, subsections included,
in their order, in one folder and one Python namespace. The function NAME lays out the folder; it is called
with the words and returns names for the namespace. ``run nightly:`` and ``run processes:`` give the test that
marker; with ``processes``, each block is a program of its own.

- ``sh`` blocks run in bash; those that consist of ``tfshards`` commands run in this process. Commands that
  build are alternatives: all but the first replace what is there.
- ``python`` blocks are executed in the namespace.
- A ``text`` block that directly follows a block is the end of what that prints, but for numbers and ids.
- A block with ``title="FILE"`` is written to that file.
- ``<!-- check: DATASET SPLIT=COUNT ... -->`` compares the numbers of examples.

A block with ``no-run`` in its info string is left out, for the reason that the last comment
``<!-- no-run: REASON -->`` above it gives.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from tests.programs import Programs
from tests.surface.command import main
from tfshards import loader, prep
from tfshards.schemas import read_manifest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_PART = re.compile(
    r"^(?P<level>#{1,4}) (?P<heading>.+)$"
    r"|^<!-- (?P<kind>run|check|no-run)(?: (?P<mark>\w+))?: (?P<words>(?s:.+?)) -->$"
    r"|^(?P<indent> *)```(?P<language>\w*)(?P<info>.*)\n(?P<code>(?s:.*?))^(?P=indent)```$",
    re.M,
)


class Block(NamedTuple):
    """A fenced block, or a check, whose language is ``check``."""

    language: str
    code: str
    info: str = ""
    follows: bool = False
    """Only blank lines separate it from the block above."""


@dataclass
class Section:
    """The part of a page that a comment runs, or, without a name, what no comment runs."""

    page: Path
    heading: str
    level: int = 0
    name: str = ""
    mark: str | None = None
    words: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


def sections_of(page: Path) -> list[Section]:
    """Return the sections of a page that run, and last what does not, with its reason as ``info``."""
    text = page.read_text()
    unknown = re.sub(_PART, "", text).partition("<!--")[2]
    assert not unknown, f"{page.name}: a comment that nothing reads: {unknown[:80]}"
    found, rest = [], Section(page, "")
    section, heading, level, reason, end = rest, "", 0, "", 0
    for part in _PART.finditer(text):
        if part["level"]:
            heading, level = part["heading"], len(part["level"])
            section = section if level > section.level > 0 else rest
        elif part["kind"] == "run":
            assert section is rest, f"{page.name}, {heading}: two comments run this section"
            name, *words = shlex.split(part["words"])
            section = Section(page, heading, level, name, part["mark"], words)
            found.append(section)
        elif part["kind"] == "check":
            section.blocks.append(Block("check", part["words"]))
        elif part["kind"] == "no-run":
            reason = part["words"]
        else:
            code = re.sub(f"^{part['indent']}", "", part["code"], flags=re.M)
            follows = text[end : part.start()].strip() == ""
            if "no-run" in part["info"].split():
                rest.blocks.append(Block(part["language"], code, reason))
            else:
                section.blocks.append(
                    Block(part["language"], code, part["info"] * (section is not rest), follows)
                )
            end = part.end()
    return [*found, rest]


def commands(code: str) -> Iterator[list[str]]:
    """Yield the words of each command of a block."""
    for line in code.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def shape(text: str) -> list[list[str]]:
    """Return the words of each line, with ids, numbers and their units replaced."""
    text = re.sub(r"\b[0-9a-f]{8}\b", "ID", text)
    text = re.sub(r"\d[\d.,]*(?:e[-+]\d+)?", "0", text)
    text = re.sub(r"\b0 to 0\b", "0", text)
    text = re.sub(r"\b0 (?:bytes|[KMG]iB)", "0 MiB", text)
    text = re.sub(r"\b0[mu]?s/step", "0s/step", text)
    return [line.split() for line in text.splitlines()]


class Runner:
    """Runs blocks in the working directory, and keeps what each printed."""

    def __init__(self, names: dict[str, object], programs: Programs | None = None) -> None:
        self.names = {"__name__": "page", "loader": loader, "prep": prep} | names
        # text of the page -> what replaces it here
        self._replaced: dict[str, str] = self.names.pop("replaced", {})
        self.printed: list[str] = []
        self._programs = programs
        self._builds = 0

    def run_all(self, section: Section) -> None:
        """Write the files of a section, and run its blocks."""
        for block in section.blocks:
            if title := re.search(r'title="(.+?)"', block.info):
                Path(title[1]).write_text(block.code)
        for block in section.blocks:
            self.run(block)

    def run(self, block: Block) -> None:
        """Run a block, or compare what it states."""
        code = block.code
        for old, new in self._replaced.items():
            code = code.replace(old, new)
        if block.language == "check":
            dataset = code.split()[0]
            splits = read_manifest(dataset).splits.items()
            found = " ".join([dataset, *(f"{name}={each.num_examples}" for name, each in splits)])
            assert found == code, f"{found}, not {code}"
        elif block.language == "text" and block.follows:
            expected = shape(code)
            assert shape(self.printed[-1])[-len(expected) :] == expected, self.printed[-1]
        elif block.language == "python":
            self.printed.append(self._python(code))
        elif block.language == "sh":
            self.printed.append(self._shell(code))

    def _python(self, code: str) -> str:
        if self._programs:
            return _succeeded(self._programs.run(["-c", code]), code)
        with redirect_stdout(StringIO()) as printed:
            exec(compile(code, "<page>", "exec"), self.names)
        return printed.getvalue()

    def _shell(self, code: str) -> str:
        lines = [*commands(code)]
        bare = re.sub(r"'[^']*'|#.*", "", code)
        if self._programs or re.search(r"[|&;<>$~]", bare) or any(words[0] != "tfshards" for words in lines):
            environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            command = ["bash", "-euc", code]
            return _succeeded(subprocess.run(command, env=environment, capture_output=True, text=True), code)
        with redirect_stdout(StringIO()) as printed:
            for _, *words in lines:
                assert main([*words, *self._overwrite(words)]) == 0, words
        return printed.getvalue()

    def _overwrite(self, words: list[str]) -> list[str]:
        if words[0] not in ("build", "adopt") or "--config" in words:
            return []
        self._builds += 1
        return ["--overwrite"] if self._builds > 1 and "--overwrite" not in words else []


def _succeeded(done, code: str) -> str:
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout
