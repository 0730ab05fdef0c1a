"""The estimate of a build: bytes and memory against real builds.

benchmarks/foresight.py compares the time with that of real builds.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tfshards.prep import Arrays, ImageFolder, ImageOptions, Options, build, plan
from tfshards.prep.cli.main import main
from tfshards.prep.planning.plan import duration

pytestmark = pytest.mark.nightly

FACTOR = 1.5
COMMAND = (sys.executable, "-c", "from tfshards.prep.cli.main import entry; entry()")


@pytest.fixture
def photos(tmp_path):
    """Return a folder of 120 images of different sizes, some of them transparent."""
    random = np.random.default_rng(0)
    for number in range(120):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.{'png' if number % 4 == 0 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        sides = random.integers(60, 200, 2)
        image = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize(sides.tolist())
        if number % 4 == 0:
            image.putalpha(128)
        image.save(path)
    return tmp_path / "photos"


def ratio(some, other):
    return max(some / other, other / some)


@pytest.mark.parametrize("images", [ImageOptions(), ImageOptions(resize="short=48")])
def test_the_bytes_of_a_build_are_those_of_its_estimate(images, photos, tmp_path):
    source = ImageFolder(photos, images)
    found = plan(source, tmp_path / "out", shards=2, estimate=True)
    assert not (tmp_path / "out").exists()
    manifest = build(source, tmp_path / "out", shards=2, log=lambda _: None)
    written = sum(split.num_bytes for split in manifest.splits.values())
    assert ratio(found.estimate.output_bytes, written) < FACTOR
    assert found.estimate.num_sampled <= 120
    assert found.estimate.seconds > 0
    assert f"from {found.estimate.num_sampled:,} examples" in repr(found)


@pytest.mark.nightly
def test_the_memory_of_a_build_is_that_of_its_estimate(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 256, (60_000, 784), dtype=np.uint8))
    line = ["arrays", "x.npy", "out", "--shards", "2"]
    done = subprocess.run(
        [*COMMAND, "plan", *line, "--estimate", "--json"], cwd=tmp_path, capture_output=True, check=True
    )
    estimate = json.loads(done.stdout)["estimate"]
    process = subprocess.Popen(
        [*COMMAND, "build", *line], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    most = 0
    while process.poll() is None:
        most = max(most, private_bytes(process.pid))
        time.sleep(0.005)
    assert process.returncode == 0
    assert ratio(estimate["memory_bytes"], most) < FACTOR


def private_bytes(pid):
    """Return the memory of a process and those that it started, without pages of files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        children = [
            child
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return 0
    own = sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))
    return own + sum(map(private_bytes, children))


def test_what_a_sample_loses_and_rejects_is_shown_with_options_that_keep_it(photos, tmp_path, capsys):
    (photos / "a" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    found = plan(ImageFolder(photos), tmp_path / "out", estimate=True)
    assert "alpha='keep' and channels=4 store it, alpha='drop' leaves the colors" in repr(found)
    assert main(["plan", "images", str(photos), str(tmp_path / "out"), "--estimate"]) == 0
    printed = capsys.readouterr().out
    assert "with transparency: drawn over white" in printed
    assert "--alpha keep and --channels 4 store it, --alpha drop leaves the colors" in printed
    assert "rejected in the sample: 1 " in printed
    assert main(["plan", "images", str(photos), str(tmp_path / "out"), "--estimate", "--json"]) == 0
    estimate = json.loads(capsys.readouterr().out)["estimate"]
    assert sum(estimate["rejected"].values()) == 1
    assert "--alpha keep" in estimate["losses"][0]


def test_a_plan_for_training_shows_its_speed_and_what_is_converted(photos, tmp_path, capsys):
    line = ["plan", "images", str(photos), str(tmp_path / "out")]
    assert main([*line, "--for-training", "32"]) == 0
    printed = capsys.readouterr().out
    assert "images a second on each core" in printed
    assert "resized, " in printed
    found = plan(ImageFolder(photos), tmp_path / "out", estimate=True).estimate
    assert found.views_per_second > 0
    assert found.conversions["alpha over white"] == 30
    assert main(line) == 0
    assert "estimate" not in capsys.readouterr().out


def test_a_plan_without_images_shows_no_speed_of_training(photos, tmp_path):
    rows = plan(Arrays({"x": np.zeros((4, 10), np.uint8)}), tmp_path / "out", estimate=True)
    assert rows.estimate.views_per_second is None
    for path in photos.rglob("*.*"):
        path.write_bytes(b"\xff\xd8\xff")
    broken = plan(ImageFolder(photos), tmp_path / "out", estimate=True)
    assert broken.estimate.views_per_second is None
    assert "training" not in repr(broken)


def test_a_compressed_build_is_estimated_as_such(tmp_path):
    rows = Arrays({"x": np.zeros((4000, 100), np.uint8)})
    sizes = [
        plan(rows, tmp_path / "out", options=Options(compression=name), estimate=True).estimate.output_bytes
        for name in ("none", "gzip")
    ]
    assert sizes[1] < sizes[0] / 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (12.4, "12 s"), (300, "5.0 min"), (9000, "2.5 h"), (9e6, "2,500 h")],
)
def test_times_are_shown_in_a_unit_that_fits(seconds, text):
    assert duration(seconds) == text
