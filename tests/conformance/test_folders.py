"""Folders of images: classes, splits, patterns, and what is skipped and counted."""

import pytest

from tests.conformance.calls import images
from tests.conformance.inputs import Link
from tests.conformance.rows import refused, row, stored
from tests.conformance.runner import check
from tfshards.schemas import BuildError, InputError, OptionsError


def labeled(*names: str, split: str = "train", at: int = 0):
    """Return examples whose classes are folders; images are numbered as they are named here."""
    return {
        split: {
            name: {"image": number, "label": name.split("/")[at]}
            for number, name in enumerate(names)
        }
    }


def numbered(*names: str):
    return {f"in/{name}": number for number, name in enumerate(names)}


def flat(*names: str):
    return {"train": {name: {"image": number} for number, name in enumerate(names)}}


CLASSES = ("cat/1.png", "dog/1.png", "cat/2.png", "dog/3.png")
ROWS = [
    row("no folders", numbered("b.png", "a.png"), images(), stored(flat("b.png", "a.png"))),
    row("class folders", numbered(*CLASSES), images(), stored(labeled(*CLASSES), "cat", "dog")),
]


@pytest.mark.parametrize(("files", "call", "expected"), ROWS)
def test_a_folder_of_images_becomes_what_it_holds(files, call, expected):
    check(files, call, expected)
