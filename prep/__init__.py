"""Convert images, arrays and tables to exactly balanced TFRecord shards, and maintain the datasets.

This room never imports TensorFlow. Its public names are in ``__init__.pyi``, which type checkers and editors
read. They are imported when they are first used: some of them need Apache Beam or Arrow, which take about a
second to import.
"""

import re
from functools import cache
from importlib import import_module
from pathlib import Path

# packages of the extra that are imported when they are needed
_OF_EXTRA = ("PIL", "apache_beam", "pyarrow", "shtab", "tomli", "yaml")


@cache
def _homes() -> dict[str, str]:
    """Return the module of each public name."""
    table = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    return {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", table, re.MULTILINE)}


def __getattr__(name: str) -> object:
    if name == "__all__":
        return [*_homes()]
    if name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(_homes()[name]), name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(install_text(error, f"prep.{name}"), name=error.name) from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes()})


def install_text(error: ModuleNotFoundError, what: str) -> str:
    """Return the message about a package that is not installed, with the command that installs it.

    Raises:
        ModuleNotFoundError: the package does not belong to an extra, so that its lack is a fault.
    """
    if "pip install 'tfshards[" in str(error):
        return str(error)
    if str(error.name).split(".")[0] not in _OF_EXTRA:
        raise error
    return f"{what} needs {error.name}: pip install 'tfshards[prep]'"
