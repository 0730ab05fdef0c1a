"""``--duplicates`` of a dataset that exists, and which pairs are named."""

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
