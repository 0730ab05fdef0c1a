"""Convert images, arrays and tables to exactly balanced TFRecord shards, and maintain the datasets.

This room never imports TensorFlow. Its names are imported when they are first used: some of them need Apache
Beam or Arrow, which take about a second to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfshards.prep.adoption.adopt import adopt
    from tfshards.prep.auditing.audit import Audit, audit
    from tfshards.prep.building.build import build, plan
    from tfshards.prep.building.generations import Generation, Pruned, generations, prune, restore
    from tfshards.prep.building.write_shards import WriteShards, WriteShardsResult
    from tfshards.prep.deriving.append import append
    from tfshards.prep.deriving.diff import Diff, diff
    from tfshards.prep.deriving.merge import merge
    from tfshards.prep.deriving.options import ShardOptions
    from tfshards.prep.deriving.relabel import relabel
    from tfshards.prep.deriving.remove import remove
    from tfshards.prep.deriving.reshard import reshard
    from tfshards.prep.engines.read_shards import ReadShards
    from tfshards.prep.exporting.export import Export, export
    from tfshards.prep.imaging.options import ImageOptions
    from tfshards.prep.planning.options import Options, ShardCounts
    from tfshards.prep.progress.threads import limited_jobs
    from tfshards.prep.reporting.report import Report, report
    from tfshards.prep.sources.arrays import Arrays
    from tfshards.prep.sources.coco import Coco
    from tfshards.prep.sources.examples import Examples
    from tfshards.prep.sources.folder import ImageFolder
    from tfshards.prep.sources.table import Table
    from tfshards.prep.sources.yolo import Yolo
    from tfshards.prep.verification.repair import repair
    from tfshards.prep.verification.report import RecordProblem, VerificationReport
    from tfshards.prep.verification.verify import verify
    from tfshards.schemas import read_manifest as info

__all__ = [
    "Arrays",
    "Audit",
    "Coco",
    "Diff",
    "Examples",
    "Export",
    "Generation",
    "ImageFolder",
    "ImageOptions",
    "Options",
    "Pruned",
    "ReadShards",
    "RecordProblem",
    "Report",
    "ShardCounts",
    "ShardOptions",
    "Table",
    "VerificationReport",
    "WriteShards",
    "WriteShardsResult",
    "Yolo",
    "adopt",
    "append",
    "audit",
    "build",
    "diff",
    "export",
    "generations",
    "info",
    "limited_jobs",
    "merge",
    "plan",
    "prune",
    "relabel",
    "remove",
    "repair",
    "report",
    "reshard",
    "restore",
    "verify",
]


def __getattr__(name: str) -> object:
    module = next((module for module, names in _NAMES.items() if name in names.split()), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(f"tfshards.{module}"), _ELSEWHERE.get(name, name))
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(install_text(error, f"prep.{name}"), name=error.name) from None
    globals()[name] = found
    return found


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


# packages of the extra that are imported when they are needed
_OF_EXTRA = ("PIL", "apache_beam", "pyarrow", "shtab", "tomli", "yaml")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# the public names of each module
_NAMES = {
    "prep.adoption.adopt": "adopt",
    "prep.auditing.audit": "Audit audit",
    "prep.building.build": "build plan",
    "prep.building.generations": "Generation Pruned generations prune restore",
    "prep.building.write_shards": "WriteShards WriteShardsResult",
    "prep.deriving.diff": "Diff diff",
    "prep.engines.read_shards": "ReadShards",
    "prep.exporting.export": "Export export",
    "prep.imaging.options": "ImageOptions",
    "prep.planning.options": "Options ShardCounts",
    "prep.progress.threads": "limited_jobs",
    "prep.reporting.report": "Report report",
    "prep.deriving.append": "append",
    "prep.deriving.options": "ShardOptions",
    "prep.deriving.merge": "merge",
    "prep.deriving.relabel": "relabel",
    "prep.deriving.remove": "remove",
    "prep.verification.repair": "repair",
    "prep.deriving.reshard": "reshard",
    "prep.sources.arrays": "Arrays",
    "prep.sources.coco": "Coco",
    "prep.sources.examples": "Examples",
    "prep.sources.folder": "ImageFolder",
    "prep.sources.table": "Table",
    "prep.sources.yolo": "Yolo",
    "prep.verification.report": "RecordProblem VerificationReport",
    "prep.verification.verify": "verify",
    "schemas": "info",
}
# names under which a module has them, if they are others
_ELSEWHERE = {"info": "read_manifest"}
