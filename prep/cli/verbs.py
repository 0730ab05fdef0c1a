"""The verbs of this room: a new verb is one row."""

from __future__ import annotations

from tfshards.prep.cli.parser import Verb

_ROWS = (
    Verb(
        "build",
        "tfshards.prep.building.build:build",
        "build a dataset, or resume an interrupted build",
        ("dataset",),
        has_kinds=True,
    ),
    Verb(
        "plan",
        "tfshards.prep.building.build:plan",
        "show what build would produce, without decoding images",
        ("dataset",),
        has_kinds=True,
    ),
    Verb(
        "info",
        "tfshards.prep.verification.info:info",
        "print the splits, features, classes and totals of a dataset",
    ),
    Verb(
        "show",
        "tfshards.prep.verification.show:show",
        "print examples by key or by number",
        ("key",),
    ),
    Verb("report", "tfshards.prep.reporting.report:report", "write a page of HTML that shows a dataset"),
    Verb(
        "verify",
        "tfshards.prep.verification.verify:verify",
        "compare sizes, digests, indexes, labels and keys of a dataset with its manifest",
    ),
    Verb(
        "audit",
        "tfshards.prep.auditing.audit:audit",
        "find examples in two splits, duplicates, rare classes and unusual image sizes",
    ),
    Verb(
        "diff",
        "tfshards.prep.deriving.diff:diff",
        "print the examples and options in which two datasets differ",
        ("other",),
    ),
    Verb(
        "generations",
        "tfshards.prep.building.generations:generations",
        "list the dataset and the generations that it has replaced, until prune removes them",
    ),
    Verb(
        "restore",
        "tfshards.prep.building.generations:restore",
        "make an earlier generation of a dataset the dataset again",
        ("folder",),
    ),
    Verb(
        "prune",
        "tfshards.prep.building.generations:prune",
        "remove files of earlier and unfinished builds",
    ),
    Verb(
        "adopt",
        "tfshards.prep.adoption.adopt:adopt",
        "write a manifest for existing TFRecord files",
    ),
    Verb(
        "reshard",
        "tfshards.prep.deriving.reshard:reshard",
        "write the examples of a dataset to other shards, in a new folder or in place",
        ("dataset",),
    ),
    Verb(
        "merge",
        "tfshards.prep.deriving.merge:merge",
        "combine several datasets into one, split by split",
        ("dataset",),
    ),
    Verb(
        "append",
        "tfshards.prep.deriving.append:append",
        "add new examples to a dataset in new shards, with the options of its build",
        ("dataset",),
    ),
    Verb(
        "remove",
        "tfshards.prep.deriving.remove:remove",
        "remove examples from a dataset, and keep append from taking them again",
    ),
    Verb(
        "relabel",
        "tfshards.prep.deriving.relabel:relabel",
        "give examples of a dataset other classes",
    ),
    Verb(
        "export",
        "tfshards.prep.exporting.export:export",
        "write the examples of a dataset in the format of another tool",
        ("directory",),
    ),
)
# in the order of the help
VERBS: dict[str, Verb] = {verb.name: verb for verb in _ROWS}
