"""Receipts: keys, refusals and the command line; tests/order compares them with the order."""

from __future__ import annotations

import json

import pytest

from tests.errors import raises
from tests.format_reader import companion
from tests.prep.exported import BUILD_ID
from tests.surface.command import main
from tfshards.loader import Mix, Occurrence, Shuffle, Worker, batches, when, which
from tfshards.schemas import Feature, InputError, OptionsError, Schema

from .conftest import flip_bit, in_shards, shard_of

SCHEMA = Schema((Feature("label", "label", "int64"), Feature("key", "bytes", "bytes")), ("ant", "bee", "cat"))
SIZES = [17, 0, 40, 6]
COUNT = sum(SIZES)


def write_keys(write_dataset, folder, prefix, sizes=SIZES, compression="none"):
    shards = in_shards(lambda number: {"label": number % 3, "key": f"{prefix}{number}".encode()}, sizes)
    return write_dataset(folder, SCHEMA, {"train": shards}, compression=compression)


@pytest.fixture(scope="module")
def data(write_dataset, tmp_path_factory):
    return write_keys(write_dataset, tmp_path_factory.mktemp("data"), "a/")


def position_of(path, worker=None, **options):
    """Return the position of a run, whose shards need not be sound."""
    return batches(path, worker=worker, **{"batch_size": 8, **options}).position


def test_a_key_that_two_mixed_datasets_have_is_found_in_both(data, write_dataset, tmp_path):
    mix = Mix({data: 3, write_keys(write_dataset, tmp_path / "other", "a/", [9, 8]): 1})
    found = when(mix, position_of(mix, remainder="pad"), ["a/4"])
    assert {(each.number, each.key) for each in found} == {(4, b"a/4"), (COUNT + 4, b"a/4")}


def test_only_files_of_keys_are_read_of_shards_whose_keys_are_asked_for(write_dataset, tmp_path):
    path = write_keys(write_dataset, tmp_path / "damaged", "a/")
    run = position_of(path, batch_size=17)
    for shard in range(4):
        shard_of(path, shard).write_bytes(b"")
    flip_bit(path / companion(f"{BUILD_ID}/{shard_of(path, 2).name}", "keys"), 100)
    assert which(path, run, step=0)[3] == Occurrence(0, 0, 0, 3, 3, b"a/3")
    assert when(path, run, [20]) == [Occurrence(0, 1, 0, 3, 20, None)]
    for ask in (lambda: which(path, run, step=1), lambda: when(path, run, ["a/3"])):
        with pytest.raises(ValueError, match=r"00002-of-00004\.keys"):
            ask()


def test_compressed_shards_and_examples_without_keys_have_receipts(write_dataset, tmp_path, numbered):
    path = write_keys(write_dataset, tmp_path / "gzip", "a/", compression="gzip")
    cache = f"disk:{tmp_path}/cache"
    run = position_of(path, batch_size=4, shuffle=Shuffle(), cache=cache)
    found = which(path, run, step=0)
    assert [each.key for each in found] == [f"a/{each.number}".encode() for each in found]
    assert when(path, run, [each.key for each in found]) == found
    run = position_of(numbered(SIZES), batch_size=4)
    assert which(numbered(SIZES), run, step=0)[0] == Occurrence(0, 0, 0, 0, 0, None)
    with raises(InputError, "have no keys; use"):
        when(numbered(SIZES), run, [b"3"])


def test_wrong_arguments_are_named(data):
    run = position_of(data, batch_size=9)
    for function, options, name in [
        (which, {"step": "3:x"}, "step"),
        (which, {"step": range(0)}, "step"),
        (which, {"step": 7, "epoch": 0}, "step"),
        (which, {"step": 0, "epoch": -1}, "epoch"),
        (when, {"examples": [1.5]}, "examples"),
        (when, {"examples": [COUNT]}, "examples"),
        (when, {"examples": [1], "epochs": 0}, "epochs"),
        (when, {"examples": [1], "epochs": range(-1, 3)}, "epochs"),
    ]:
        with raises(OptionsError, f"{name}="):
            function(data, run, **options)
    with pytest.raises(InputError, match="no example with the key 'b/1'"):
        when(data, run, ["a/1", "b/1"])


# The command line


@pytest.fixture
def command(capsys):
    """Return a function that runs a verb with JSON, and returns its rows, or the status and the message."""

    def run(verb, *arguments):
        status = main([verb, *map(str, arguments), "--json"])
        found = json.loads(capsys.readouterr().out)
        return found if status == 0 else (status, found["message"])

    return run


def saved(path, data, **options):
    """Write a position of a run into a file, and return it."""
    path.write_text(json.dumps(position_of(data, **options).to_json()))
    return path


def rows(occurrences):
    return [{**each._asdict(), "key": each.key and each.key.decode()} for each in occurrences]


def test_the_verbs_print_receipts_of_the_run_of_a_position(data, command, tmp_path):
    options = {"shuffle": Shuffle(-3, run=2, lanes=4), "take": 40}
    file = saved(tmp_path / "position.json", data, **options)
    two = position_of(data, Worker(0, 2), **{**options, "batch_size": 4})
    found = command("which", data, file, "--step", "1:3", "--workers", 2, "--take", 40)
    assert found == rows(which(data, two, step=range(1, 3), workers=2, take=40))
    assert {row["worker"] for row in found} == {0, 1}
    found = command("when", data, file, "a/3", "--epochs", "2:4", "--workers", 2, "--take", 40)
    assert found == rows(when(data, two, ["a/3"], epochs=range(2, 4), workers=2, take=40))
    assert found
    # the choice of examples is not in a position
    status, message = command("when", data, file, "a/1")
    assert (status, "the choice of examples" in message) == (2, True)
    assert command("when", data, file, "a/1", "--workers", 3)[0] == 2


def test_receipts_are_printed_one_a_line(data, tmp_path, capsys):
    file = saved(tmp_path / "position.json", data, batch_size=30)
    assert main(["which", str(data), str(file), "--step", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[9] == "epoch 0, step 0, worker 0, row 9, number 9, key a/9"


def test_examples_without_keys_are_found_by_their_numbers(numbered, tmp_path, command):
    file = saved(tmp_path / "position.json", numbered(SIZES))
    assert [row["step"] for row in command("when", numbered(SIZES), file, 17)] == [2]


def test_wrong_files_of_positions_are_named(data, command, tmp_path):
    file = tmp_path / "position.json"
    of_a_run = '{"epoch": 0, "step": 0, "order": {"seed": "1"}}'
    for content in ("[", "[1, 2]", '{"epoch": -1, "step": 0}', '{"epoch": 1, "step": 0}', of_a_run):
        file.write_text(content)
        status, message = command("when", data, file, "a/1")
        assert (status, str(file) in message) == (1, True), content
