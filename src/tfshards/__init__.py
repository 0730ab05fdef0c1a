"""Folders, tables and arrays of images to balanced TFRecord shards, and the loader that reads them.

The rooms are imported when they are first used: building needs the extra ``prep`` (Apache Beam, Pillow,
Arrow), ``tfshards.loader`` TensorFlow, and a program that uses one of them need not have the other.

>>> import tfshards
>>> manifest = tfshards.prep.build(tfshards.prep.ImageFolder("photos/"), "data/photos", shards=64)
>>> train = tfshards.loader.load("data/photos", "train", batch_size=256)
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfshards import loader, prep, schemas

_HERE = os.path.dirname(os.path.abspath(__file__))
if not os.path.isdir(os.path.join(_HERE, "schemas")):
    # A clone or archive without symbolic links: the rooms are at its top, two folders above this one.
    __path__.append(os.path.dirname(os.path.dirname(_HERE)))

__version__: str
__all__ = ["__version__", "loader", "prep", "schemas"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        # reading the installed metadata takes milliseconds, which an import need not pay
        from importlib.metadata import version

        return version("tfshards")
    if name in __all__:
        return import_module(f"tfshards.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def _open_closed_streams() -> None:
    """Open each standard stream that is closed on nothing.

    A file of the dataset would get its number otherwise, and hold what a library or another process prints.
    """
    import sys

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # the system gives the lowest number that is free
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def _command() -> None:
    """Run the command line; Ctrl-C while it is imported, which takes a moment, ends it cleanly, too."""
    import sys

    _open_closed_streams()
    try:
        from tfshards.command import VERBS
        from tfshards.prep.cli.main import entry
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        raise SystemExit(130) from None
    entry(VERBS)
