"""The verbs of this room, in the order of the help: a new verb is one row."""

from __future__ import annotations

from tfshards.prep.cli.parser import Verb

_ROWS = (
    Verb("build", "tfshards.prep.building.build", ("dataset",), has_kinds=True),
    Verb(
        "plan",
        "tfshards.prep.building.build",
        ("dataset",),
        has_kinds=True,
        ignored=("overwrite", "checksum", "engine"),
    ),
    Verb("info", "tfshards.prep.verification.info"),
    Verb("show", "tfshards.prep.verification.show", ("key",)),
    Verb("report", "tfshards.prep.reporting.report"),
    Verb("verify", "tfshards.prep.verification.verify"),
    Verb("audit", "tfshards.prep.auditing.audit"),
    Verb("diff", "tfshards.prep.deriving.diff", ("other",)),
    Verb("generations", "tfshards.prep.building.generations"),
    Verb("restore", "tfshards.prep.building.generations", ("folder",)),
    Verb("prune", "tfshards.prep.building.generations"),
    Verb("adopt", "tfshards.prep.adoption.adopt"),
    Verb("reshard", "tfshards.prep.deriving.reshard", ("dataset",)),
    Verb("merge", "tfshards.prep.deriving.reshard", ("dataset",)),
    Verb("append", "tfshards.prep.deriving.append", ("dataset",)),
    Verb("remove", "tfshards.prep.deriving.edit"),
    Verb("relabel", "tfshards.prep.deriving.edit"),
    Verb("export", "tfshards.prep.exporting.export", ("directory",)),
)
VERBS: dict[str, Verb] = {verb.name: verb for verb in _ROWS}
