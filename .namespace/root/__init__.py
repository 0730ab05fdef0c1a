"""Folders, tables and arrays of images to balanced TFRecord shards, and the loader that reads them.

The rooms are imported when they are first used: building needs the extra ``prep`` (Apache Beam, Pillow,
Arrow), ``tfshards.loader`` TensorFlow, and a program that uses one of them need not have the other.

>>> import tfshards
>>> manifest = tfshards.prep.build(tfshards.prep.ImageFolder("photos/"), "data/photos", shards=64)
>>> train = tfshards.loader.load("data/photos", "train", batch_size=256)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfshards import loader, prep, schemas

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


def _command() -> None:
    """Run the command line; Ctrl-C while it is imported, which takes a moment, ends it cleanly, too."""
    import sys

    try:
        from tfshards.command import run
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        raise SystemExit(130) from None
    run()
