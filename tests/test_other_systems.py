"""The core runs without what other operating systems lack."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tfshards.prep import Arrays, build

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]

# What macOS does not have.
WITHOUT = """
import os
for name in ("sched_getaffinity", "posix_fadvise"):
    delattr(os, name)
"""


@pytest.mark.parametrize(
    "code",
    [
        """
from tfshards.prep.cli.main import main
for line in ("info data", "verify data --deep", "show data 3", "diff data data", "generations data"):
    assert main(line.split()) == 0, line
""",
        """
from tfshards import loader
for options in ({}, {"shuffle": loader.Shuffle(seed=1)}, {"cache": "disk:cache, 1MB"}):
    batches = loader.load("data", "train", batch_size=5, **options)
    assert sorted(int(x) for batch in batches for x in batch["x"]) == [*range(20)]
""",
        """
import numpy as np
from tfshards import prep
made = prep.build(prep.Arrays({"x": np.arange(20)}), "other", shards=3)
assert prep.verify("other", deep=True)
""",
    ],
    ids=["verbs", "loader", "builds"],
)
def test_the_core_runs_without_what_other_systems_lack(code, tmp_path):
    build(Arrays({"x": np.arange(20)}), tmp_path / "data", shards=3)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_download_without_links_and_without_git_is_complete(tmp_path):
    with zipfile.ZipFile(tmp_path / "main.zip", "w") as archive:
        for room in ("src", "prep", "loader", "schemas"):
            for path in (ROOT / room).rglob("*"):
                if path.is_symlink():
                    # as some programs unpack a link
                    archive.writestr(str(path.relative_to(ROOT)), os.readlink(path))
                elif "__pycache__" not in path.parts:
                    archive.write(path, path.relative_to(ROOT))
    with zipfile.ZipFile(tmp_path / "main.zip") as archive:
        archive.extractall(tmp_path / "main")
    code = "import tfshards.prep, tfshards.loader, tfshards.command; print(tfshards.prep.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "main" / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == f"{tmp_path / 'main' / 'prep' / '__init__.py'}\n", done.stderr
