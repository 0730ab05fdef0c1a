"""Run the command: parse the arguments, run the verb, and convert errors to messages and exit statuses.

Results are printed to standard output, status lines to standard error. Exit status: 0 success; 2 an invalid
command line; 1 any other error, and problems found by ``verify``; 3 a dataset that is committed, but not
complete; 130 interrupted; 143 ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from tfshards.prep import install_text
from tfshards.prep.cli.expand import Expanded, expand
from tfshards.prep.cli.flags import log_with_flags, with_flags
from tfshards.prep.cli.parser import make_parser
from tfshards.prep.cli.verb import Verb
from tfshards.prep.cli.verbs import VERBS
from tfshards.schemas import IncompleteError, OptionsError, TfshardsError
from tfshards.schemas.build_area import AREA_NAME
from tfshards.schemas.errors import one_line


def main(arguments: Sequence[str] | None = None, verbs: Mapping[str, Verb] = VERBS) -> int:
    """Run one command and return its exit status.

    Args:
        arguments: the command line without the name of the program; by default that of the process.
        verbs: the table of verbs.
    """
    own, beam_args = _at_bare_dashes(list(sys.argv[1:] if arguments is None else arguments))
    # Beam and its dependencies warn at import about parts that are not used here.
    logging.basicConfig(level=logging.ERROR)
    expanded = Expanded(own)
    parser = argparse.ArgumentParser()
    try:
        parser = make_parser(verbs, only=next((word for word in own if word in verbs), ""))
        expanded = expand(own, parser)
        args, unknown = parser.parse_known_args(expanded.arguments)
        # the parser of the verb, whose help lists the options
        parser = args.parser
        if unknown:
            # unlike flags of tfshards, most of Beam's options have underscores
            is_of_beam = unknown[0].startswith("--runner") or re.match("--[a-z]+_", unknown[0])
            is_after = "; options of Apache Beam follow a bare --"
            hint = is_after if is_of_beam and args.verb.takes_beam_args else ""
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        _check_not_empty(args)
        if beam_args and not args.verb.takes_beam_args:
            *names, last = (verb.name for verb in verbs.values() if verb.takes_beam_args)
            allowed = f"{', '.join(names)} and {last}"
            raise OptionsError(f"only {allowed} accept pipeline options of Apache Beam after --")
        args.beam_args = beam_args
        args.log = log_with_flags(parser)
        args.verbs = verbs
        if expanded.line:
            args.log(expanded.line)
        _complete_left(args)
        return int(args.verb.run(args))
    except SystemExit as end:
        # raised by argparse, after a mistake or --help
        return int(end.code or 0)
    except OptionsError as error:
        return _fail(expanded.with_origin(with_flags(str(error), parser)), 2)
    except IncompleteError as error:
        return _fail(str(error), 3)
    except TfshardsError as error:
        return _fail(expanded.with_origin(with_flags(str(error), parser)), 1)
    except BrokenPipeError:
        # the program that reads the output, such as head, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        return _fail(install_text(error, own[0]), 1)
    except OSError as error:
        return _fail(_system_fault(error), 1)
    except KeyboardInterrupt as error:
        verb = verbs.get(own[0]) if own else None
        resumes = "; run the same command to resume" if verb and verb.is_resumable else ""
        print(f"\ninterrupted{resumes}", file=sys.stderr)
        return 143 if isinstance(error, _Terminated) else 130


def entry(verbs: Mapping[str, Verb] = VERBS) -> NoReturn:
    """Run the command and end the process at once, even if a runner has left threads running."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # file names need not be UTF-8, and a terminal need not be able to show them
        sys.stdout.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminate)
    status = main(verbs=verbs)
    for stream in (sys.stdout, sys.stderr):
        # either may be closed
        with suppress(BrokenPipeError, AttributeError):
            stream.flush()
    os._exit(status)


class _Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, such as from the scheduler of a cluster: the command ends as it does on Ctrl-C."""


def _terminate(_: int, __: FrameType | None) -> NoReturn:
    raise _Terminated


def _at_bare_dashes(given: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before the first bare ``--``, and those after it."""
    if "--" not in given:
        return given, []
    return given[: given.index("--")], given[given.index("--") + 1 :]


def _check_not_empty(args: argparse.Namespace) -> None:
    """Raise OptionsError if a path is empty, which would be the working directory."""
    for name in ("source", "sources", "dataset", "directory"):
        given = getattr(args, name, None)
        if given == "" or (isinstance(given, list) and "" in given):
            raise OptionsError(f"{name}= is empty; give . for the working directory")


def _complete_left(args: argparse.Namespace) -> None:
    """Complete what an earlier command on the dataset has committed, but could not complete."""
    dataset = getattr(args, "dataset", None)
    if dataset and os.path.isdir(os.path.join(dataset, AREA_NAME)):
        from tfshards.prep.building.commit import complete_left

        complete_left(dataset, args.log)


def _system_fault(error: OSError) -> str:
    if not error.strerror:
        return str(error)
    is_named = isinstance(error.filename, (str, bytes))
    return one_line(f"{os.fsdecode(error.filename) if is_named else 'operating system'}: {error.strerror}")


def _fail(text: str, status: int) -> int:
    print(f"tfshards: {text}", file=sys.stderr)
    return status
