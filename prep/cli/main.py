"""Run the command: parse the arguments, run the verb, and print its result, or its error.

The result goes to standard output, as text or as JSON; everything else is reported to the console, on
standard error. Exit status: 0 success; 2 an invalid command line; 1 any other error, and problems that
``verify`` found; 130 interrupted, 143 ended by SIGTERM, 129 by SIGHUP.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import version
from types import FrameType
from typing import NoReturn

from tfshards.prep.cli.failure import Failure, failure_of, interruption
from tfshards.prep.cli.option_files import Expanded, expand
from tfshards.prep.cli.parser import make_parser
from tfshards.prep.cli.verb import Result, Verb
from tfshards.prep.cli.verbs import VERBS
from tfshards.prep.progress.console import reporting
from tfshards.prep.progress.lines import LOGGER
from tfshards.prep.progress.threads import limited_jobs
from tfshards.schemas import OptionsError


def main(arguments: Sequence[str] | None = None, verbs: Mapping[str, Verb] = VERBS) -> int:
    """Run one command and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    own, beam_args = given[:end], given[end + 1 :]
    expanded = Expanded(own)
    parser, args = argparse.ArgumentParser(), argparse.Namespace()
    # until the arguments are parsed, which may fail
    as_json = "--json" in own
    with reporting(), ExitStack() as stack:
        try:
            parser = make_parser(verbs, own)
            expanded = expand(own, parser)
            args, unknown = _parsed(parser, expanded.arguments)
            # the parser of the verb, whose help lists the options
            parser, as_json = args.parser, args.json
            if unknown:
                hint = "; options of Apache Beam follow a bare --" if args.verb.takes_beam_args else ""
                parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
            _check_not_empty(args)
            _check_beam_args(args, beam_args, verbs)
            stack.enter_context(reporting(quiet=args.quiet, verbose=args.verbose))
            LOGGER.debug(f"tfshards {version('tfshards')}, {args.parser.prog}")
            stack.enter_context(limited_jobs(getattr(args, "jobs", None)))
            args.beam_args = beam_args
            args.verbs = verbs
            result: Result = args.verb.run(args)
            _print_result(result, as_json=as_json)
            LOGGER.debug(f"exit status {result.status}")
            return result.status
        except SystemExit as end:
            # raised by argparse after --help
            return int(end.code or 0)
        except KeyboardInterrupt as error:
            verb = verbs.get(own[0]) if own else None
            status = error.status if isinstance(error, _Terminated) else 130
            failure = interruption(status, is_resumable=bool(verb and verb.is_resumable))
            LOGGER.error(str(failure))
            _print_failure(failure, as_json=as_json)
            return status
        except Exception as error:
            failure = failure_of(error, parser, expanded)
            LOGGER.debug(traceback.format_exc())
            _print_failure(failure, as_json=as_json)
            if failure.kind == "internal":
                raise
            LOGGER.error(str(failure))
            return failure.status


def entry(verbs: Mapping[str, Verb] = VERBS) -> NoReturn:
    """Run the command and end the process at once, even if a runner has left threads running."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # file names need not be UTF-8, and a terminal need not be able to show them
        sys.stdout.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminate)
    # Windows has no such signal, and a program that nohup has started ignores it.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _terminate)
    status = main(verbs=verbs)
    for stream in (sys.stdout, sys.stderr):
        # either may be closed, or at the end of a disk
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


class _Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, such as from the scheduler of a cluster, and on SIGHUP, at the end of a terminal.

    The command ends as it does on Ctrl-C.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


def _terminate(number: int, _: FrameType | None) -> NoReturn:
    raise _Terminated(number)


def _parsed(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[argparse.Namespace, list[str]]:
    try:
        return parser.parse_known_args(arguments)
    except BrokenPipeError:
        # the program that reads the help, such as head, has read enough
        _abandon_stdout()
        raise SystemExit(1) from None


def _check_not_empty(args: argparse.Namespace) -> None:
    """Raise OptionsError if a path is empty, which would be the working directory."""
    for name in ("source", "sources", "dataset", "directory"):
        given = getattr(args, name, None)
        if given == "" or (isinstance(given, list) and "" in given):
            raise OptionsError("path-empty", name=name)


def _check_beam_args(args: argparse.Namespace, beam_args: Sequence[str], verbs: Mapping[str, Verb]) -> None:
    """Raise OptionsError unless options of Beam have an effect, and those of the local engine."""
    if beam_args and not args.verb.takes_beam_args:
        *names, last = (one.name for one in verbs.values() if one.takes_beam_args)
        raise OptionsError("beam-options-useless", allowed=f"{', '.join(names)} and {last}")
    jobs = getattr(args, "jobs", None)
    if jobs is not None and (beam_args or getattr(args, "engine", None) == "beam"):
        raise OptionsError("jobs-with-beam", jobs=jobs)


def _print_result(result: Result, *, as_json: bool) -> None:
    """Print a result; it is not an error if its reader has read enough, or there is none."""
    try:
        if as_json:
            print(json.dumps(result.to_json(), indent=1))
        else:
            text = result.text()
            for part in text if isinstance(text, Iterator) else [text]:
                print(part)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _abandon_stdout()
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, "standard output") from None


def _abandon_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_failure(failure: Failure, *, as_json: bool) -> None:
    if as_json:
        # standard output may be the fault
        with suppress(OSError):
            print(json.dumps(failure.to_json()), flush=True)
