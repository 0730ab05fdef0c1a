"""The table of verbs: a new verb is one file and one row."""

import numpy as np
import pytest
from PIL import Image

from tfshards.prep.cli.main import main
from tfshards.prep.cli.verb import Result, Verb, add_dataset
from tfshards.prep.cli.verbs import VERBS
from tfshards.schemas import InputError, OptionsError, read_manifest


def add_arguments(parser):
    add_dataset(parser)
    parser.add_argument("--at-least", type=int, default=0, metavar="N", help="number of examples to expect")


def count(args):
    if args.at_least < 0:
        raise OptionsError(f"at_least={args.at_least} must not be negative")
    found = read_manifest(args.dataset).num_examples
    if found < args.at_least:
        raise InputError(f"{found} examples are fewer than at_least={args.at_least}")
    if args.beam_args == ["stop"]:
        raise KeyboardInterrupt
    return Result(lambda: str(found), lambda: found)


@pytest.fixture
def run(tmp_path, array_files, capsys):
    """Return a function that runs the command line with a new row in the table of verbs."""
    (x,) = array_files(x=list(range(5)))
    assert main(["build", "arrays", x, str(tmp_path / "numbers")]) == 0
    capsys.readouterr()
    verbs = VERBS | {
        "count": Verb("count", "count the examples", add_arguments, count, takes_beam_args=True),
        "again": Verb("again", "count again", add_arguments, count, takes_beam_args=True, is_resumable=True),
    }

    def run(*arguments):
        return (main(arguments, verbs), *capsys.readouterr())

    return run


def test_a_new_row_is_a_verb(run, tmp_path):
    dataset = str(tmp_path / "numbers")
    assert run("count", dataset, "--at-least", "5") == (0, "5\n", "")
    assert run("count", dataset, "--at-least=6") == (
        1,
        "",
        "tfshards: 5 examples are fewer than --at-least 6\n",
    )
    assert run("count", dataset, "--at-least=-1") == (2, "", "tfshards: --at-least -1 must not be negative\n")
    assert run("count", "") == (2, "", "tfshards: DATASET is empty; give . for the working directory\n")
    assert "count the examples" in run("--help")[1]
    assert run("count", "--help")[1].startswith(
        "usage: tfshards count [-h] [--at-least N] [--config FILE] [--json] [-q | -v]\n"
    )
    text = (
        "tfshards: only build, reshard, merge, append, remove, relabel, export, count and again accept "
        "pipeline options of Apache Beam after --\n"
    )
    assert run("info", dataset, "--", "x") == (2, "", text)


def test_an_interrupted_verb_reports_whether_it_can_be_resumed(run, tmp_path):
    dataset = str(tmp_path / "numbers")
    assert run("count", dataset, "--", "stop") == (130, "", "\ninterrupted\n")
    resumes = "\ninterrupted; run the same command to resume\n"
    assert run("again", dataset, "--", "stop") == (130, "", resumes)


def test_status_lines_name_flags(tmp_path, capsys):
    upside_down = Image.Exif()
    upside_down[0x0112] = 3
    (tmp_path / "photos").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    photo = Image.fromarray(noise).resize((200, 160), Image.Resampling.BICUBIC)
    photo.save(tmp_path / "photos" / "0.jpg", quality=80, exif=upside_down)
    assert main(["build", "images", str(tmp_path / "photos"), str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "; --jpeg-quality 95, or less, stores them as JPEG" in lines[-1]
