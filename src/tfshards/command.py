"""The command ``tfshards``: the table of its verbs, of prep and of the loader, and completion in a shell.

It belongs to neither room, since neither imports the other.
"""

from __future__ import annotations

from typing import Literal

from tfshards.prep.cli.parser import Parser, Verb, make_parser
from tfshards.prep.sources.kinds import Kind

# a new verb is one row; the help has their order
_ROWS = (
    Verb("build", "tfshards.prep.building.build", ("dataset",), has_kinds=True),
    Verb(
        "plan",
        "tfshards.prep.building.build",
        ("dataset",),
        has_kinds=True,
        ignored=("overwrite", "checksum"),
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
    Verb("bench", "tfshards.loader.speeds"),
    Verb("which", "tfshards.loader.receipts", ("position",)),
    Verb("when", "tfshards.loader.receipts", ("position", "examples")),
    Verb("completion", __name__),
)
VERBS = {verb.name: verb for verb in _ROWS}


def completion(shell: Literal["bash", "zsh", "fish"]) -> str:
    """Return a script that completes commands in a shell.

    Args:
        shell: bash, zsh or fish.

    Raises:
        ModuleNotFoundError: shtab is not installed (``tfshards[prep]``).
    """
    # imported late, because no other verb needs it
    import shtab

    def add_verb(parser: Parser, verb: Verb, kind: Kind | None) -> None:
        parser.add_verb(verb, kind)
        for action in parser._actions:
            if action.choices is None and action.nargs != 0:
                action.complete = shtab.FILE  # type: ignore[attr-defined]

    script: str = shtab.complete(make_parser(VERBS, add_verb), shell)
    return script
