"""Receipts: keys, refusals and the command line; tests/order compares them with the order."""

from __future__ import annotations

import json

import pytest

from tests.errors import fault, raises
from tests.format_reader import companion
from tests.prep.exported import BUILD_ID
from tests.surface.command import main
from tfshards.command import VERBS
from tfshards.loader import Mix, Occurrence, Part, Position, Shuffle, Worker, batches, when, which
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


def test_a_key_that_two_mixed_datasets_have_is_found_in_both(data, write_dataset, tmp_path):
    other = write_keys(write_dataset, tmp_path / "other", "a/", [9, 8])
    found = when(Mix({data: 3, other: 1}), examples=["a/4"], batch_size=8, remainder="pad")
    assert {each.number for each in found} == {4, COUNT + 4}
    assert {each.key for each in found} == {b"a/4"}


def test_only_files_of_keys_are_read_of_shards_whose_keys_are_asked_for(write_dataset, tmp_path):
    path = write_keys(write_dataset, tmp_path / "damaged", "a/")
    for shard in range(4):
        shard_of(path, shard).write_bytes(b"")
    flip_bit(path / companion(f"{BUILD_ID}/{shard_of(path, 2).name}", "keys"), 100)
    where = {"batch_size": 17, "shuffle": None}
    assert which(path, step=0, **where)[3] == Occurrence(0, 0, 0, 3, 3, b"a/3")
    assert len(which(path, step=1, keys=False, **where)) == 17
    assert when(path, examples=[20], **where) == [Occurrence(0, 1, 0, 3, 20, None)]
    for ask in (lambda: which(path, step=1, **where), lambda: when(path, examples=["a/3"], **where)):
        with pytest.raises(ValueError, match=r"00002-of-00004\.keys"):
            ask()


def test_compressed_shards_and_examples_without_keys_have_receipts(write_dataset, tmp_path, numbered):
    path = write_keys(write_dataset, tmp_path / "gzip", "a/", compression="gzip")
    found = which(path, batch_size=4, step=0, shuffle=Shuffle())
    assert [each.key for each in found] == [f"a/{each.number}".encode() for each in found]
    assert when(path, batch_size=4, examples=[each.key for each in found], shuffle=Shuffle()) == found
    assert which(numbered(SIZES), batch_size=4, step=0)[0] == Occurrence(0, 0, 0, 0, 0, None)
    with raises(InputError, "records-no-keys"):
        when(numbered(SIZES), batch_size=4, examples=[b"3"])


def test_wrong_arguments_are_named(data):
    for function, options, expected in [
        (which, {"step": "3"}, fault("which-step", step="3", num_steps=7)),
        (which, {"step": range(0)}, "which-step"),
        (which, {"step": 7, "epoch": 0}, "which-step"),
        (which, {"step": 0, "epoch": -1}, "below-least"),
        (which, {"step": 0, "worker": 2, "workers": 2}, fault("which-worker", worker=2, workers=2)),
        (when, {"examples": "a/3"}, "when-examples"),
        (when, {"examples": [1.5]}, "when-examples"),
        (when, {"examples": [COUNT]}, fault("when-number", number=COUNT, num_examples=COUNT)),
        (when, {"examples": [1], "epochs": 0}, "below-least"),
        (when, {"examples": [1], "epochs": range(-1, 3)}, "when-epochs"),
    ]:
        with raises(OptionsError, expected):
            function(data, **{"batch_size": 9, **options})
    with raises(InputError, fault("when-key", key="b/1")):
        when(data, batch_size=8, examples=["a/1", "b/1"])


# The command line


@pytest.fixture
def command(capsys):
    """Return a function that runs a verb with JSON, and returns its rows, or the code of its error."""

    def run(verb, *arguments):
        status = main([verb, *map(str, arguments), "--json"], VERBS)
        found = json.loads(capsys.readouterr().out)
        return next(iter(found.values())) if status == 0 else (status, found["code"], found["message"])

    return run


def rows(occurrences):
    return [{**each._asdict(), "key": each.key and each.key.decode()} for each in occurrences]


FLAGS = {
    "a seed": (["--seed", -3, "--remainder", "pad"], {"shuffle": Shuffle(-3), "remainder": "pad"}),
    "runs": (["--run", 2, "--lanes", 4], {"shuffle": Shuffle(run=2, lanes=4)}),
    "a full permutation": (["--how", "full", "--seed", 2], {"shuffle": Shuffle(2, "full")}),
    "a part": (["--take", "1/3"], {"take": Part(1, 3)}),
    "the other parts": (["--take", "1/3/rest"], {"take": Part(1, 3, rest=True)}),
    "classes": (["--classes", "ant", "--classes", 2, "--take", 20], {"classes": ["ant", 2], "take": 20}),
    "ratios": (["--classes", "ant=1", "--classes", "2=2.5"], {"classes": {"ant": 1, 2: 2.5}}),
}


@pytest.mark.parametrize(("flags", "options"), FLAGS.values(), ids=FLAGS)
def test_the_verbs_print_receipts_also_of_the_run_of_a_position(data, command, tmp_path, flags, options):
    where = ["--batch-size", 4, "--workers", 2, *flags]
    options = {"batch_size": 4, "workers": 2, **options}
    found = command("which", data, "--split", "train", "--step", "1:3", "--worker", 1, *where)
    assert found == rows(which(data, step=range(1, 3), worker=1, **options))
    found = command("when", data, 3, "--epochs", "2:4", "--numbers", *where)
    assert found == rows(when(data, examples=[3], epochs=range(2, 4), **options))
    of_run = {name: options[name] for name in options if name != "workers"}
    run = batches(data, worker=Worker(0, 2), epochs=3, **of_run)
    file = tmp_path / "position.json"
    start = Position(*divmod(run.steps_per_epoch + 2, run.steps_per_epoch), run.order)
    file.write_text(json.dumps(start.to_json()))
    choice = flags if flags[0] in ("--take", "--classes") else []
    found = command("which", data, "--step", 1, "--from", file, "--workers", 4, *choice)
    assert found == rows(which(data, step=1, start=start, **{**options, "batch_size": 2, "workers": 4}))
    assert found


def test_receipts_are_printed_as_columns(data, capsys):
    assert main(["which", str(data), "--batch-size", "50", "--step", "0"], VERBS) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["epoch", "step", "worker", "row", "number", "key"]
    assert lines[10] == ["0", "0", "0", "9", "9", "a/9"]


def test_wrong_files_of_positions_are_named(data, command, tmp_path):
    file = tmp_path / "position.json"
    of_a_run = '{"epoch": 0, "step": 0, "order": {"seed": "1"}}'
    for content in ("[", "[1, 2]", '{"epoch": -1, "step": 0}', of_a_run):
        file.write_text(content)
        status, found, message = command("when", data, "a/1", "--from", file)
        assert (status, found, str(file) in message) == (1, "position-file", True)


def test_a_file_of_a_run_with_another_order_is_refused(data, command, tmp_path):
    file = tmp_path / "position.json"
    file.write_text(json.dumps(batches(data, batch_size=8, shuffle=Shuffle(1), take=20).position.to_json()))
    assert command("when", data, "a/1", "--from", file)[1] == "resume-order"
    assert command("when", data, "a/1", "--from", file, "--take", 20, "--seed", 2)[1] == "resume-order"
    assert [row["epoch"] for row in command("when", data, "a/1", "--from", file, "--take", 20)] == [0]
    file.write_text('{"epoch": 1, "step": 0}')
    assert command("when", data, "a/1", "--from", file, "--batch-size", 8)[0]["epoch"] == 0
