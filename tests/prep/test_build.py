"""The result of a build: the same bytes with any runner, and what makes another build."""

import shutil
from contextlib import nullcontext

import numpy as np
import pytest

from tests.errors import raises
from tfshards.prep import Arrays, ImageFolder, ImageOptions
from tfshards.schemas import BuildError, InputError, OptionsError


def with_rejects(good: int, bad: int) -> dict[str, int | bytes]:
    """Return files of two classes; the bad ones are spread among the others."""
    files: dict[str, int | bytes] = {f"{'ab'[n % 2]}/{n:03d}.png": n for n in range(good)}
    return files | {f"{'ab'[n % 2]}/{n:03d}-bad.jpg": b"no image" for n in range(bad)}


def test_a_runner_that_runs_nothing_is_detected(tmp_path, quiet_build):
    args = ["--runner=apache_beam.runners.render.RenderRunner", f"--render_output={tmp_path / 'job.dot'}"]
    with raises(BuildError, "the pipeline ended", "shard 0 of split 'train'"):
        quiet_build(Arrays({"x": np.arange(4)}), tmp_path / "out", shards=2, beam_args=args)


@pytest.mark.parametrize("wrong", ["FlinkRunner", "--runner=Flonk", "--runner=none.Flonk"])
def test_a_mistake_in_beam_options_is_reported_before_writing(wrong, tmp_path, quiet_build):
    with pytest.raises(OptionsError, match="Apache Beam") as found:
        quiet_build(Arrays({"x": np.arange(4)}), tmp_path / "out", beam_args=[wrong])
    assert "\n" not in str(found.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "fits"), [({}, False), ({"resize": "short=8"}, True), ({"format": "jpeg"}, True)]
)
def test_a_disk_is_full_only_for_images_that_stay_as_they_are(
    options, fits, image_folder, tmp_path, quiet_build, monkeypatch
):
    source = ImageFolder(image_folder(with_rejects(20, 0)), images=ImageOptions(**options))
    usage = shutil.disk_usage(tmp_path)
    # a full disk cannot be arranged here
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with (
        nullcontext()
        if fits
        else raises(InputError, "needs about", "the dataset", "1000 B", code="disk-full")
    ):
        quiet_build(source, tmp_path / "out")
