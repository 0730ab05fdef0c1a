"""The tests of two small modules find every change of an operator or a number in them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
@pytest.mark.parametrize("module", ["prep/planning/options.py", "schemas/digests.py"])
def test_no_mutant_survives(module):
    uv = Path(sys.executable).parent / "uv"
    command = [uv, "run", "-q", "--no-project", "--python", sys.executable, "--with", "cosmic-ray==8.7.0"]
    done = subprocess.run(
        [*command, "python", ROOT / "tests" / "mutation" / "run.py", module],
        env=os.environ | {"PYTHONPATH": str(ROOT / ".namespace")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
