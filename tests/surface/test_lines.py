"""Each verb: its right line, and the mistakes that can be made with every verb, flag and path."""

import re
from pathlib import Path

import pytest

from tests.surface.command import NAMES, refused, run, run_json, snapshot
from tests.surface.lines import FLAGS, GONE, LINES, OUTPUT

each = pytest.mark.parametrize("line", LINES, ids=[line.verb for line in LINES])
TAKE_MORE_WORDS = ("build arrays", "plan arrays", "merge", "append", "when")
ESCAPE = "gone\x1b[31m\nx"


def words(line, *, without="", more=()):
    """Return the words of a right line, without one of its options and with others."""
    own = line.options.split()
    if without in own:
        index = own.index(without)
        own = own[:index] + own[index + 2 :]
    return [*line.verb.split(), *with_old(line.paths).split(), *own, *more]


def with_old(text):
    """Return a text with the folder of the earlier generation in it."""
    return text.replace("OLD", Path("old").read_text())


def test_the_table_has_every_verb():
    assert {line.verb.split()[0] for line in LINES} == {*NAMES}
    listed = re.findall(r"^    (\w+)(?: |$)", run("--help").out, re.MULTILINE)
    assert listed == NAMES


def test_help_explains_each_flag_of_the_table():
    assert {flag for line in LINES for flag in line.flags} == {*FLAGS}


@each
def test_a_right_line_prints_its_result_as_text_and_as_json(line, own):
    before, made = snapshot("."), with_old(line.makes)
    ended, document = run_json(words(line))
    assert ended.status == 0, ended
    assert not line.keys or {*line.keys} <= {*document}
    assert (snapshot(".") != before) == bool(line.makes)
    assert not made or Path(made).exists() == (line.verb != "prune")
    assert line.verb != "prune" or f"./{made}" in before
    # what is not the result is not on standard output, and nothing looks like an error
    assert not re.search(r"^tfshards|Traceback", ended.err, re.MULTILINE), ended
    if line.verb in ("build images", "reshard", "verify", "info"):
        again = run(words(line))
        assert (again.status, again.out.endswith("\n")) == (0, True)
        assert not again.out.startswith("{")


def test_a_list_is_printed_one_a_line(here):
    _, document = run_json("generations data")
    lines = run("generations data").out.splitlines()
    assert [line.split()[0] for line in lines] == [each["folder"] for each in document]
    assert len(lines) == 2


@each
def test_a_misspelled_verb_or_flag_is_refused_with_a_hint(line, here):
    verb, *kind = line.verb.split()
    refused([f"{verb}{verb[-1]}", *kind], f"{verb} meant?")
    if kind:
        refused([verb, f"{kind[0]}{kind[0][-1]}"], f"{kind[0]} meant?")
    # the flags of every verb are added in one place
    for flag in {*line.own_flags()} - {*(OUTPUT if line.verb != "info" else ())}:
        refused(words(line, more=[f"{flag}{flag[-1]}"]), [f"{flag}{flag[-1]}", f"{flag} meant?"])


@each
def test_a_wrong_value_is_refused_by_name(line, here):
    for name, flag in line.own_flags().items():
        for value in flag.wrong:
            wrong = words(line, without=name, more=[f"{name}={value}"])
            message = refused(wrong, flag.named or name, status=flag.status)
            assert not flag.choice or f"{flag.choice} meant?" in message
        if flag.named == GONE and "=" not in flag.wrong[0]:
            refused(words(line, without=name, more=[f"{name}=~/{GONE}"]), f"~/{GONE}")


@each
def test_too_few_and_too_many_words_are_refused_and_named(line, here):
    refused(line.verb, "required")
    if line.verb not in TAKE_MORE_WORDS:
        refused(words(line, more=["one-more"]), "one-more", code="usage")
    if line.verb not in ("show", "completion", "merge"):
        refused(words(line)[: len(line.verb.split()) + len(line.paths.split()) - 1], code="usage")


@each
def test_a_path_that_is_missing_empty_or_not_expanded_is_refused(line, here):
    for index in line.inputs:
        refused(line.with_path(index, "gone"), "gone", status=line.missing)
        refused(line.with_path(index, ""), "empty")
        refused(line.with_path(index, "~/gone"), "~/gone")
        message = refused(line.with_path(index, ESCAPE), status=line.missing)
        assert r"gone\x1b[31m\nx" in message
