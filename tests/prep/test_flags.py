"""Messages of the library name parameters; the command line prints its flags."""

import argparse
from dataclasses import fields
from functools import cache
from inspect import signature

import pytest

from tfshards import prep
from tfshards.prep.cli.flags import flags_of, with_flags
from tfshards.prep.cli.option_files import subcommands
from tfshards.prep.cli.parser import make_parser
from tfshards.prep.cli.verbs import VERBS
from tfshards.schemas.manifest import manifest_text

IMAGES = (prep.ImageOptions,)
BUILDS = {
    "images": (prep.Options, prep.ImageFolder, *IMAGES),
    "arrays": (prep.Options, prep.Arrays.open),
    "table": (prep.Options, prep.Table, prep.ColumnRoles, prep.RowOptions, *IMAGES),
}
# functions called by each verb, whose parameters its errors name
CALLED = {
    **{f"build {kind}": (prep.build, *called) for kind, called in BUILDS.items()},
    **{f"plan {kind}": (prep.build, *called) for kind, called in BUILDS.items()},
    "completion": (),
    "info": (manifest_text,),
    "show": (),
    "report": (prep.report, prep.ReportOptions),
    "verify": (prep.verify, prep.repair),
    "audit": (prep.audit,),
    "generations": (prep.generations,),
    "restore": (prep.restore,),
    "prune": (prep.prune,),
    "adopt": (prep.adopt, prep.AdoptOptions, prep.FeatureRoles),
    "reshard": (prep.reshard, prep.ShardOptions),
    "merge": (prep.merge, prep.ShardOptions),
    "append": (prep.append,),
    "diff": (prep.diff,),
    "remove": (prep.remove,),
    "relabel": (prep.relabel,),
    "export": (prep.export,),
}
# arguments that exist only on the command line, or that are positional
ONLY_HERE = {
    *("json", "quiet", "verbose", "jobs", "config"),
    *("batch_size", "estimate", "class_names_from", "source", "sources", "dataset", "as_splits", "shell"),
    *("keys", "keys_of", "fail_on", "key", "first", "save"),
}


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each verb, and of each of its kinds if it has any."""
    found = {}
    for name in VERBS:
        own = subcommands(make_parser(VERBS))[name]
        kinds = subcommands(own)
        found |= {f"{name} {kind}": parser for kind, parser in kinds.items()} if kinds else {name: own}
    return found


def parameters(called) -> set[str]:
    """Return the names that a function or dataclass accepts."""
    return {f.name for f in fields(called)} if isinstance(called, type) else {*signature(called).parameters}


def test_every_argument_is_stored_under_the_parameter_that_it_sets_and_printed_as_its_flag():
    assert set(parsers()) == set(CALLED)
    for verb, parser in parsers().items():
        known = set().union(*map(parameters, CALLED[verb]), ONLY_HERE)
        for action in parser._actions:
            assert action.help, action
            if isinstance(action, argparse._HelpAction):
                continue
            assert action.dest in known, action
            assert action.metavar not in ("OUT", "SRC", "NEW", "DIR") or action.dest in ("root", "directory")
            flag = action.option_strings[-1] if action.option_strings else action.metavar
            assert with_flags(f"{action.dest}=3 must be x", parser) == f"{flag} 3 must be x"
            assert with_flags(f"leave out {action.dest}=", parser) == f"leave out {flag}"
        assert flags_of(parser).get("dataset", "DATASET") == ("OTHER" if verb == "diff" else "DATASET")


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("shards=0 must be at least 1", "--shards 0 must be at least 1"),
        ('shards={"val": 0} must be', "--shards val=0 must be"),
        ('shards={"train": 2, "val": 0}: no', "--shards train=2 --shards val=0: no"),
        ("overwrite=True replaces it", "--overwrite replaces it"),
        ("name='a b' must be", "--name 'a b' must be"),
        ("name='' must be", "--name '' must be"),
        ("max_rejected='5%': was", "--max-rejected 5%: was"),
        ("splits='a=1' must be (group_by=, seed=3).", "--split a=1 must be (--group-by, --seed 3)."),
        ("class_names=('a', 'b'); x", "--class-names a --class-names b; x"),
        ("group_by='\\x1b[31m' is", r"--group-by '\x1b[31m' is"),
        ("shard_size=None, more", "--shard-size None, more"),
        ("--split seed=0.1 --seed 3", "--split seed=0.1 --seed 3"),
        ("a path/seed=3 and x_seed=3 and other=3", "a path/seed=3 and x_seed=3 and other=3"),
    ],
)
def test_values_are_printed_as_they_are_typed(message, printed):
    assert with_flags(message, parsers()["build images"]) == printed
