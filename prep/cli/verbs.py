"""The table of verbs: a new verb is one new file here, and one row in this table."""

from __future__ import annotations

from tfshards.prep.cli.adopt import ADOPT
from tfshards.prep.cli.audit import AUDIT
from tfshards.prep.cli.build import BUILD, PLAN
from tfshards.prep.cli.completion import COMPLETION
from tfshards.prep.cli.derived import MERGE, RESHARD
from tfshards.prep.cli.edited import APPEND, RELABEL, REMOVE
from tfshards.prep.cli.export import EXPORT
from tfshards.prep.cli.generations import GENERATIONS, PRUNE, RESTORE
from tfshards.prep.cli.show import DIFF, INFO, REPORT, SHOW
from tfshards.prep.cli.verb import Verb
from tfshards.prep.cli.verify import VERIFY

# in the order of the help
VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        BUILD,
        PLAN,
        INFO,
        SHOW,
        REPORT,
        VERIFY,
        AUDIT,
        DIFF,
        GENERATIONS,
        RESTORE,
        PRUNE,
        ADOPT,
        RESHARD,
        MERGE,
        APPEND,
        REMOVE,
        RELABEL,
        EXPORT,
        COMPLETION,
    )
}
