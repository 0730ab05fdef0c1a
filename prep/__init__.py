"""Conversion: image folders and arrays to exactly balanced TFRecord shards, by an Apache Beam pipeline.

This room never imports TensorFlow. ``build`` is imported when it is first asked for, since Beam takes about a
second, which a look at a dataset need not pay.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

try:
    from tfshards.prep.adoption.adopt import adopt
    from tfshards.prep.adoption.manifest import AdoptOptions
    from tfshards.prep.adoption.roles import Roles
    from tfshards.prep.audits.audit import audit
    from tfshards.prep.copies.dealing import Dealing
    from tfshards.prep.copies.merge import merge
    from tfshards.prep.copies.reshard import reshard
    from tfshards.prep.image_options import ImageOptions
    from tfshards.prep.options import Options
    from tfshards.prep.proofs.repair import Repair, repair
    from tfshards.prep.proofs.verify import verify
    from tfshards.prep.prune import Pruned, prune
    from tfshards.prep.sources.arrays import Arrays
    from tfshards.prep.sources.image_folder import ImageFolder
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tfshards.prep and the command need {error.name}: pip install 'tfshards[prep]'", name=error.name
    ) from error

if TYPE_CHECKING:
    from tfshards.prep.builder import build
    from tfshards.prep.copies.appender import append
    from tfshards.prep.sources.table import Table
    from tfshards.prep.sources.table_roles import Columns

__all__ = [
    "AdoptOptions",
    "Arrays",
    "Columns",
    "Dealing",
    "ImageFolder",
    "ImageOptions",
    "Options",
    "Pruned",
    "Repair",
    "Roles",
    "Table",
    "adopt",
    "append",
    "audit",
    "build",
    "merge",
    "prune",
    "repair",
    "reshard",
    "verify",
]


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_LATER = {
    "append": "tfshards.prep.copies.appender",
    "build": "tfshards.prep.builder",
    "Table": "tfshards.prep.sources.table",
    "Columns": "tfshards.prep.sources.table_roles",
}
