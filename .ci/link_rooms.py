"""Make .types/tfshards, a folder in which tools that read code without running it find the package.

In a clone the rooms are at the top of the repository, where ``tfshards/__init__.py`` finds them when it is
imported. Type checkers and the documentation's tools do not import it. Links are made where the system allows
them, else copies, which this command replaces.
"""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / ".types" / "tfshards"


def main() -> None:
    """Make the folder, or complete it."""
    PACKAGE.mkdir(parents=True, exist_ok=True)
    inner = [path for path in (ROOT / ".namespace" / "tfshards").iterdir() if path.name != "__pycache__"]
    for source in [*inner, ROOT / "prep", ROOT / "loader", ROOT / "schemas"]:
        link = PACKAGE / source.name
        if link.is_symlink():
            continue
        try:
            link.symlink_to(os.path.relpath(source, PACKAGE))
        except OSError:
            if source.is_dir():
                shutil.copytree(source, link, dirs_exist_ok=True)
            else:
                shutil.copyfile(source, link)


if __name__ == "__main__":
    main()
