"""Options of a build: allowed values, and the messages about others."""

import json
from fractions import Fraction

import numpy as np
import pytest

from tfshards.prep import Options
from tfshards.prep.cli.main import main
from tfshards.prep.planning.options import DEFAULT_SHARD_SIZE, parse_share
from tfshards.schemas import OptionsError
from tfshards.schemas.sizes import parse_size

HALVES = {"train": 0.5, "val": 0.5}

WRONG = {
    "ratios that do not add up": ({"splits": {"train": 0.9}}, r"^the split ratios train=0\.9 add up to 0\.9"),
    "no ratio": ({"splits": {"train": "most"}}, r"^splits='train=most' must be NAME=RATIO"),
    "strata without ratios": (
        {"stratify": True},
        r"^stratify=True requires ratios, such as splits=\{\"train\": 0\.9, \"val\": 0\.1\}$",
    ),
    "groups without ratios": ({"group_by": "folder"}, r"^group_by= requires ratios, such as splits="),
    "an unknown choice": ({"duplicates": "x"}, r"^duplicates='x' must be one of keep, drop, fail$"),
    "shards of no bytes": ({"shard_size": 0}, r"^shard_size=0 must be at least 1 byte$"),
    "a name that is none": ({"name": "a b"}, r"^name='a b' must be letters, digits"),
    "above all": ({"max_rejected": 1.1}, r"^max_rejected='1\.1' must lie between 0% and 100%, such as 5%$"),
    "fewer rejects than none": ({"max_rejected": -0.5}, r"^max_rejected='-0\.5' must lie between"),
    "no limit": ({"max_rejected": "few"}, r"^max_rejected='few' must be a share such as 1%"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_an_invalid_option_is_reported_at_once(options, message):
    with pytest.raises(OptionsError, match=message):
        Options(**options)


@pytest.mark.parametrize(
    ("given", "exactly"),
    [
        (0.1, Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        ("10%", Fraction(1, 10)),
        (Fraction(1, 10), Fraction(1, 10)),
        (np.float64(0.1), Fraction(1, 10)),
        (1, Fraction(1)),
        (0, Fraction(0)),
    ],
)
def test_a_share_is_parsed_exactly_in_every_form(given, exactly):
    assert Options(max_rejected=given).rejected_share == exactly
    rest = 1 - exactly
    if exactly not in (0, 1):
        assert Options(splits={"val": given, "train": rest}).ratios == {"val": exactly, "train": rest}


def test_the_manifest_holds_the_options_that_change_the_bytes():
    assert Options(max_rejected=1, name="x", shard_size=1).to_json() == {
        "splits": {},
        "stratify": False,
        "group_by": None,
        "balance": "count",
    }
    assert Options(splits=HALVES, group_by="folder").to_json() == {
        "splits": {"train": "1/2", "val": "1/2"},
        "stratify": False,
        "group_by": "folder",
        "balance": "count",
    }


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("1B", 1),
        ("1KB", 1000),
        ("1kib", 1024),
        ("128MiB", 128 << 20),
        ("1.5GB", 1_500_000_000),
        ("2 GiB", 2 << 30),
        ("0.5MB", 500_000),
        ("2TB", 2 * 10**12),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes_are_read_with_their_units(text, size):
    assert parse_size(text, "shard_size") == size


@pytest.mark.parametrize("text", ["", "MiB", "1PB", "-1", "1.MiB", "1,5MB", "128 Mi B", "0x10"])
def test_an_invalid_size_is_reported(text):
    with pytest.raises(OptionsError, match=r"^shard_size=.* must be a size such as 128MiB, 1\.5GB or 4096$"):
        parse_size(text, "shard_size")


@pytest.mark.parametrize("text", ["", "%", "few", "1%%", "1/0", "1/0%", "inf"])
def test_an_invalid_share_is_reported(text):
    with pytest.raises(OptionsError, match=r"^max_rejected=.* must be a share such as 1% or 0\.01$"):
        parse_share(text)


def test_the_defaults_of_a_build_are_those_of_the_documentation():
    assert DEFAULT_SHARD_SIZE == 128 * 1024 * 1024


def test_each_flag_of_a_split_adds_one(image_folder, tmp_path, capsys):
    root = image_folder({f"{number % 2}/{number}.png": number for number in range(4)})
    halves = ["--split", "train=0.5", "--split", "val=0.5"]
    assert main(["plan", "images", str(root), str(tmp_path / "out"), "--json", *halves]) == 0
    assert [*json.loads(capsys.readouterr().out)["splits"]] == ["train", "val"]
