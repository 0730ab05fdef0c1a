"""``--duplicates`` of a dataset that exists, and which pairs are named."""

import json

import pytest

from tests.errors import raises
from tfshards.prep import ImageFolder, Options
from tfshards.schemas import BuildError, InputError

DROP, FAIL = Options(duplicates="drop"), Options(duplicates="fail")


def test_a_dataset_that_was_never_compared_is_not_up_to_date(image_folder, tmp_path, quiet_build):
    root, out = image_folder({"1.png": 1, "2.png": 1}), tmp_path / "out"
    quiet_build(ImageFolder(root), out)
    for options in (DROP, FAIL):
        with raises(InputError, "dataset-differs"):
            quiet_build(ImageFolder(root), out, options=options)
    with pytest.raises(BuildError, match=r"'2\.png'.*'1\.png'"):
        quiet_build(ImageFolder(root), out, options=FAIL, overwrite=True)
    assert quiet_build(ImageFolder(root), out, options=DROP, overwrite=True).num_examples == 1


def test_pairs_are_named_a_few_in_the_message_and_all_in_the_list(image_folder, tmp_path, quiet_build):
    names = ["a/1.png", "b/\n2.png", *(f"b/{n}.png" for n in range(3, 10))]
    root = image_folder(dict.fromkeys(names, 1))
    with pytest.raises(BuildError) as caught:
        quiet_build(ImageFolder(root), tmp_path / "out", options=FAIL)
    lines = str(caught.value).split("\n")
    assert (len(lines), r"'b/\n2.png'" in lines[1], "'a/1.png'" in lines[1], "3 more" in lines[-1]) == (
        7,
        *[True] * 3,
    )
    quiet_build(ImageFolder(root), tmp_path / "2" / "out", options=DROP)
    (path,) = (tmp_path / "2" / "out").glob("*/rejected.jsonl")
    listed = [json.loads(line) for line in path.open()]
    assert [(line["key"], line["reason"]) for line in listed] == [(name, "duplicate") for name in names[1:]]
    assert all("'a/1.png'" in line["detail"] for line in listed)
