"""The code of README.md and docs/*.md runs, and does what the pages state."""

import ast
import inspect
import re
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.pages import PAGES, ROOT, Runner, commands, sections_of
from tests.surface import page_data
from tfshards.command import VERBS
from tfshards.prep.cli.parser import Parser, make_parser

# tests/test_datasets.py runs datasets.md
SECTIONS = [
    pytest.param(
        section,
        marks=[getattr(pytest.mark, section.mark)] if section.mark else [],
        id=f"{page.stem}: {section.heading}",
    )
    for page in PAGES
    for section in sections_of(page)[:-1]
    if page.name != "datasets.md"
]
# the README shows three classes, and works with two
[README] = sections_of(ROOT / "README.md")[:-1]
TWO = pytest.param(
    replace(README, words=["cat", "dog"]), marks=pytest.mark.processes, id="README: with two classes"
)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.mark.parametrize("section", [*SECTIONS, TWO])
def test_the_code_of_a_section_runs_and_has_its_result(section, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = getattr(page_data, section.name)
    parameters = inspect.signature(function).parameters.values()
    fixtures = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    prepared = function(*section.words, **{name: request.getfixturevalue(name) for name in fixtures})
    names = next(prepared) if inspect.isgenerator(prepared) else prepared
    programs = request.getfixturevalue("programs") if section.mark == "processes" else None
    runner = Runner(names or {}, programs)
    runner.run_all(section)
    assert runner.printed
    if inspect.isgenerator(prepared):
        with suppress(StopIteration):
            prepared.send(runner)


@each_page
def test_every_block_of_a_page_is_run_or_says_why_not(page):
    parser = make_parser(VERBS, Parser.add_verb)
    for block in sections_of(page)[-1].blocks:
        assert block.info or block.language not in ("sh", "python", "check"), block.code
        for path in re.findall(r"(?:tests|examples)/[\w/.]*\w", block.info):
            assert (ROOT / path).exists(), path
        if block.language == "python":
            ast.parse(block.code)
        for program, *words in commands(block.code) if block.language == "sh" else ():
            if program == "tfshards":
                parser.parse_args(words[: words.index("--")] if "--" in words else words)


@each_page
def test_the_code_of_a_page_is_fenced(page):
    outside = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.M | re.S)
    assert re.findall(r"^ {4}.*", outside, re.M) == []
