"""The verb ``remove``."""

from __future__ import annotations

import argparse

from tfshards.prep.cli.edited import add_edit_options, run_edit
from tfshards.prep.cli.verb import Result, Verb, add_dataset


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    parser.add_argument(
        "--keys",
        required=True,
        metavar="FILE",
        help="file with a key per line, such as tfshards audit --keys writes; a line that starts with a "
        "quotation mark is a JSON string",
    )
    add_edit_options(parser)
    parser.epilog = (
        "The old files stay until the next build, so that training can finish; tfshards prune removes them, "
        "and with them the last byte of the removed examples."
    )


def _run(args: argparse.Namespace) -> Result:
    from tfshards.prep.derivation.remove import remove

    return run_edit(
        args,
        lambda log: remove(
            args.dataset, args.keys, skip_unknown=args.skip_unknown, dry_run=args.dry_run, log=log
        ),
    )


REMOVE = Verb(
    "remove",
    "remove examples from a dataset, and keep append from taking them again",
    _add_arguments,
    _run,
    is_resumable=True,
    takes_jobs=True,
)
