"""Fetch the object stores that tests/storage starts and that pip does not install.

``python -m tests.storage.setup_servers [fake-gcs] [azurite]`` fetches what is missing into the
folder of the engines (tests/engines/setup_engines.py). The fixtures of tests/storage do the same.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from tests.engines.setup_engines import engines_folder, fetching, run

FAKE_GCS = "1.56.1"
# The newest release that Node 20 runs.
AZURITE = "3.35.0"


def fake_gcs_path() -> Path:
    """Return the path of the program of fake-gcs-server."""
    return engines_folder() / "bin" / f"fake-gcs-server-{FAKE_GCS}"


def azurite_folder() -> Path:
    """Return the folder into which npm installs Azurite."""
    return engines_folder() / f"azurite-{AZURITE}"


def set_up_fake_gcs() -> None:
    """Compile fake-gcs-server."""
    with fetching(fake_gcs_path()) as partial:
        if partial:
            partial.mkdir()
            run("go", "install", f"github.com/fsouza/fake-gcs-server@v{FAKE_GCS}", GOBIN=str(partial))
            (partial / "fake-gcs-server").rename(fake_gcs_path())


def set_up_azurite() -> None:
    """Fetch Azurite."""
    with fetching(azurite_folder()) as partial:
        if partial:
            partial.mkdir()
            # fmt: off
            run("npm", "install", "--no-audit", "--no-fund", "--omit=dev",
                "--prefix", str(partial / "installed"), f"azurite@{AZURITE}")
            # fmt: on
            (partial / "installed").rename(azurite_folder())


STEPS: dict[str, Callable[[], None]] = {
    "fake-gcs": set_up_fake_gcs,
    "azurite": set_up_azurite,
}

if __name__ == "__main__":
    for step in sys.argv[1:] or STEPS:
        STEPS[step]()
