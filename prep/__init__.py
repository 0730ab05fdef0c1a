"""Convert images, arrays and tables to exactly balanced TFRecord shards, and maintain the datasets.

This room never imports TensorFlow. Names that need Apache Beam or Arrow are imported when they are
first used, since these take about a second to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

try:
    from tfshards.prep.adoption.adopt import adopt
    from tfshards.prep.adoption.manifest import AdoptOptions
    from tfshards.prep.adoption.roles import FeatureRoles
    from tfshards.prep.auditing.audit import audit
    from tfshards.prep.building.prune import Pruned, prune
    from tfshards.prep.derivation.merge import merge
    from tfshards.prep.derivation.reshard import reshard
    from tfshards.prep.derivation.shard_options import ShardOptions
    from tfshards.prep.imaging.options import ImageOptions
    from tfshards.prep.planning.options import Options
    from tfshards.prep.planning.shard_counts import ShardCounts
    from tfshards.prep.sources.arrays.source import Arrays
    from tfshards.prep.sources.images.folder import ImageFolder
    from tfshards.prep.verification.repair import repair
    from tfshards.prep.verification.report import RecordProblem, RepairReport, VerificationReport
    from tfshards.prep.verification.verify import verify
    from tfshards.schemas import read_manifest as info
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"tfshards.prep and the command need {_error.name}: pip install 'tfshards[prep]'", name=_error.name
    ) from _error

if TYPE_CHECKING:
    from tfshards.prep.building.build import build
    from tfshards.prep.building.preview import plan
    from tfshards.prep.derivation.append import append
    from tfshards.prep.sources.tables.column_roles import ColumnRoles
    from tfshards.prep.sources.tables.source import Table

__all__ = [
    "AdoptOptions",
    "Arrays",
    "ColumnRoles",
    "FeatureRoles",
    "ImageFolder",
    "ImageOptions",
    "Options",
    "Pruned",
    "RecordProblem",
    "RepairReport",
    "ShardCounts",
    "ShardOptions",
    "Table",
    "VerificationReport",
    "adopt",
    "append",
    "audit",
    "build",
    "info",
    "merge",
    "plan",
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
    "append": "tfshards.prep.derivation.append",
    "plan": "tfshards.prep.building.preview",
    "build": "tfshards.prep.building.build",
    "Table": "tfshards.prep.sources.tables.source",
    "ColumnRoles": "tfshards.prep.sources.tables.column_roles",
}
