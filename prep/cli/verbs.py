"""The table of verbs: a new verb is one new file here, and one row in this table."""

from __future__ import annotations

from tfshards.prep.cli.adopt import ADOPT
from tfshards.prep.cli.append import APPEND
from tfshards.prep.cli.audit import AUDIT
from tfshards.prep.cli.build import BUILD
from tfshards.prep.cli.completion import COMPLETION
from tfshards.prep.cli.diff import DIFF
from tfshards.prep.cli.export import EXPORT
from tfshards.prep.cli.generations import GENERATIONS, RESTORE
from tfshards.prep.cli.info import INFO
from tfshards.prep.cli.merge import MERGE
from tfshards.prep.cli.plan import PLAN
from tfshards.prep.cli.prune import PRUNE
from tfshards.prep.cli.relabel import RELABEL
from tfshards.prep.cli.remove import REMOVE
from tfshards.prep.cli.report import REPORT
from tfshards.prep.cli.reshard import RESHARD
from tfshards.prep.cli.show import SHOW
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
