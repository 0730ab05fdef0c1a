"""Two small datasets, kept as files: the same inputs give the same bytes in every later release.

If a test here fails, the format or the build has changed, and a build of unchanged inputs is no
longer up to date. If that is intended, raise FORMAT_VERSION if readers are affected, and regenerate the
files: ``python -m tests.prep.test_golden``.
"""

import io
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.pictures import write
from tfshards.prep import Arrays, ImageFolder, ImageOptions, Options, ShardCounts, build, verify

GOLDEN = Path(__file__).parent / "golden"


def numbers(folder: Path):
    """Arrays of several kinds."""
    arrays = {
        "image": np.arange(11 * 6, dtype=np.uint8).reshape(11, 2, 3),
        "weight": (np.arange(11) / 8 - 0.5).astype(">f8"),
        "box": (np.arange(22, dtype=np.int16) - 5).reshape(11, 2),
        "label": np.arange(11, dtype=np.int32) % 3,
        "name": np.array([f"row {row}" for row in range(11)]),
    }
    for name, array in arrays.items():
        content = io.BytesIO()
        np.save(content, array)
        write(folder / f"{name}.npy", content.getvalue())
    source = Arrays({name: folder / f"{name}.npy" for name in arrays}, {"box": "list"})
    options = Options(splits={"train": 0.7, "val": 0.3}, stratify=True)
    given = {
        "seed": 7,
        "options": options,
    }
    return build(source, folder / "numbers", shards=ShardCounts(3, {"val": 1}), **given)


def pets(folder: Path):
    """Files kept byte for byte, so that the release of no decoder matters."""
    files = {
        f"{split}/{name}/{n}.jpg": bytes(range(n))
        for split in ("train", "test")
        for name in ("cat", "ca\udcef")
        for n in (1, 5, 9)
    }
    for relative, content in {**files, "train/cat/notes.txt": b"", "test/.hidden": b""}.items():
        write(folder / "photos" / relative, content)
    source = ImageFolder(folder / "photos", ImageOptions(check="none"))
    return build(source, folder / "pets", shards=2)


@pytest.mark.parametrize("make", [numbers, pets])
def test_the_bytes_of_a_build_never_change_between_releases(make, tmp_path, contents):
    make(tmp_path)
    made, kept = contents(tmp_path / make.__name__), contents(GOLDEN / make.__name__)
    assert {*made} == {*kept}
    for name, data in kept.items():
        assert made[name] == data, name


@pytest.mark.parametrize("name", ["numbers", "pets"])
def test_the_golden_files_are_intact(name):
    assert verify(GOLDEN / name, deep=True)


def renew() -> None:
    """Write the golden files again."""
    for make in (numbers, pets):
        shutil.rmtree(GOLDEN / make.__name__, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder))
            shutil.copytree(Path(folder) / make.__name__, GOLDEN / make.__name__)


if __name__ == "__main__":
    renew()
