"""Convert images, arrays and tables to exactly balanced TFRecord shards, and maintain the datasets.

This room never imports TensorFlow. Its names are imported when they are first used: some of them need Apache
Beam or Arrow, which take about a second to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfshards.prep.adoption.adopt import adopt
    from tfshards.prep.adoption.manifest import AdoptOptions
    from tfshards.prep.adoption.seen import FeatureRoles
    from tfshards.prep.auditing.audit import audit
    from tfshards.prep.building.build import build
    from tfshards.prep.building.preview import plan
    from tfshards.prep.building.prune import Pruned, prune, restore
    from tfshards.prep.building.write_shards import WriteShards
    from tfshards.prep.comparison.diff import Diff, diff
    from tfshards.prep.exporting.export import Export, export
    from tfshards.prep.imaging.options import ImageOptions
    from tfshards.prep.planning.options import Options, ShardCounts
    from tfshards.prep.progress.threads import limited_jobs
    from tfshards.prep.reporting.options import ReportOptions
    from tfshards.prep.reporting.report import report
    from tfshards.prep.rewriting.append import append
    from tfshards.prep.rewriting.merge import merge
    from tfshards.prep.rewriting.new_shards import ShardOptions
    from tfshards.prep.rewriting.relabel import relabel
    from tfshards.prep.rewriting.remove import remove
    from tfshards.prep.rewriting.repair import repair
    from tfshards.prep.rewriting.reshard import reshard
    from tfshards.prep.sources.arrays.source import Arrays
    from tfshards.prep.sources.elements.source import Elements
    from tfshards.prep.sources.images.folder import ImageFolder
    from tfshards.prep.sources.tables.column_roles import ColumnRoles
    from tfshards.prep.sources.tables.source import Table
    from tfshards.prep.verification.report import RecordProblem, RepairReport, VerificationReport
    from tfshards.prep.verification.verify import verify
    from tfshards.schemas import read_manifest as info
    from tfshards.schemas.generations import Generation, generations

__all__ = [
    "AdoptOptions",
    "Arrays",
    "ColumnRoles",
    "Diff",
    "Elements",
    "Export",
    "FeatureRoles",
    "Generation",
    "ImageFolder",
    "ImageOptions",
    "Options",
    "Pruned",
    "RecordProblem",
    "RepairReport",
    "ReportOptions",
    "ShardCounts",
    "ShardOptions",
    "Table",
    "VerificationReport",
    "WriteShards",
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
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(install_text(error, f"prep.{name}"), name=error.name) from None
    found = getattr(module, _ELSEWHERE.get(name, name))
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


_MODULES = {
    "AdoptOptions": "tfshards.prep.adoption.manifest",
    "Arrays": "tfshards.prep.sources.arrays.source",
    "ColumnRoles": "tfshards.prep.sources.tables.column_roles",
    "Diff": "tfshards.prep.comparison.diff",
    "Elements": "tfshards.prep.sources.elements.source",
    "Export": "tfshards.prep.exporting.export",
    "FeatureRoles": "tfshards.prep.adoption.seen",
    "Generation": "tfshards.schemas.generations",
    "ImageFolder": "tfshards.prep.sources.images.folder",
    "ImageOptions": "tfshards.prep.imaging.options",
    "Options": "tfshards.prep.planning.options",
    "Pruned": "tfshards.prep.building.prune",
    "RecordProblem": "tfshards.prep.verification.report",
    "RepairReport": "tfshards.prep.verification.report",
    "ReportOptions": "tfshards.prep.reporting.options",
    "ShardCounts": "tfshards.prep.planning.options",
    "ShardOptions": "tfshards.prep.rewriting.new_shards",
    "Table": "tfshards.prep.sources.tables.source",
    "VerificationReport": "tfshards.prep.verification.report",
    "WriteShards": "tfshards.prep.building.write_shards",
    "adopt": "tfshards.prep.adoption.adopt",
    "append": "tfshards.prep.rewriting.append",
    "audit": "tfshards.prep.auditing.audit",
    "build": "tfshards.prep.building.build",
    "diff": "tfshards.prep.comparison.diff",
    "export": "tfshards.prep.exporting.export",
    "generations": "tfshards.schemas.generations",
    "info": "tfshards.schemas",
    "limited_jobs": "tfshards.prep.progress.threads",
    "merge": "tfshards.prep.rewriting.merge",
    "plan": "tfshards.prep.building.preview",
    "prune": "tfshards.prep.building.prune",
    "relabel": "tfshards.prep.rewriting.relabel",
    "remove": "tfshards.prep.rewriting.remove",
    "repair": "tfshards.prep.rewriting.repair",
    "report": "tfshards.prep.reporting.report",
    "reshard": "tfshards.prep.rewriting.reshard",
    "restore": "tfshards.prep.building.prune",
    "verify": "tfshards.prep.verification.verify",
}
# names under which a module has them, if they are others
_ELSEWHERE = {"info": "read_manifest"}
