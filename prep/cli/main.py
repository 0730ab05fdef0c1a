"""Run the command: parse the arguments, call the function of the verb, and print its result, or its error.

The result goes to standard output, as text or as JSON; everything else is reported to the console, on
standard error. Exit status: 0 success; 2 an invalid command line; 1 any other error, and what ``verify`` and
``diff`` found; 130 interrupted, 143 ended by SIGTERM, 129 by SIGHUP.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import version
from types import FrameType
from typing import NoReturn

from tfshards.prep.cli.failure import Failure, failure_of, flags_of
from tfshards.prep.cli.parser import Verb, abandon_stdout, find_parser
from tfshards.prep.progress.console import reporting
from tfshards.prep.progress.lines import LOGGER
from tfshards.prep.progress.threads import limited_jobs
from tfshards.schemas import OptionsError
from tfshards.schemas.json_reader import as_json


def main(arguments: Sequence[str] | None, verbs: Mapping[str, Verb]) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    own, beam_args = words[:end], words[end + 1 :]
    # until the arguments are parsed, which may fail
    parser, prints_json = None, "--json" in own
    with reporting(), ExitStack() as stack:
        try:
            parser, rest = find_parser(verbs, own)
            values, common = parser.parse(rest)
            prints_json, call = common.json, parser.call
            assert call is not None
            if beam_args and not call.takes_beam_args:
                raise OptionsError(
                    f"{own[0]} does not run on Apache Beam, so leave out -- and what follows it"
                )
            stack.enter_context(reporting(quiet=common.quiet, verbose=common.verbose))
            LOGGER.debug(f"tfshards {version('tfshards')}, {parser.prog}")
            stack.enter_context(limited_jobs(common.jobs))
            result = call.run({**values, "beam_args": beam_args})
            _print_result(result, prints_json=prints_json)
            # a report of faults is false, other results are true
            return 1 if hasattr(result, "to_json") and not result else 0
        except SystemExit as end:
            # raised by argparse after --help
            return int(end.code or 0)
        except KeyboardInterrupt as error:
            status = error.status if isinstance(error, _Terminated) else 130
            resumes = "; run the same command to resume" if parser and parser.is_resumable else ""
            # after the ^C that a terminal shows
            LOGGER.error(f"\ninterrupted{resumes}")
            _print_failure(Failure(status, "interrupted", f"interrupted{resumes}"), prints_json=prints_json)
            return status
        except Exception as error:
            failure = failure_of(error, own)
            LOGGER.debug(traceback.format_exc())
            _print_failure(failure, prints_json=prints_json)
            if failure.kind == "internal":
                raise
            flags = flags_of(failure.message, parser) if parser else ""
            LOGGER.error(f"tfshards: {failure.message}{flags}")
            return failure.status


def entry(verbs: Mapping[str, Verb]) -> NoReturn:
    """Run the command and end the process at once, even if a runner has left threads running."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # file names need not be UTF-8, and a terminal need not be able to show them
        sys.stdout.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminate)
    # a program that nohup has started ignores this signal
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _terminate)
    status = main(None, verbs)
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


def _print_result(result: object, *, prints_json: bool) -> None:
    """Print a result; it is not an error if its reader has read enough, or there is none."""
    # what a generator yields is printed as it comes
    values: Iterable[object] = result if isinstance(result, (list, Iterator)) else [result]
    try:
        if prints_json:
            found = [_json_of(each) for each in values]
            print(json.dumps(found if values is result else found[0], indent=1))
        else:
            for number, each in enumerate(values):
                text = str(each) if isinstance(each, (str, os.PathLike)) else repr(each)
                # an empty line separates values of several lines
                print(f"\n{text}" if number and "\n" in text else text)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, "standard output") from None


def _json_of(value: object) -> object:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.to_json() if hasattr(value, "to_json") else as_json(value)


def _print_failure(failure: Failure, *, prints_json: bool) -> None:
    if prints_json:
        # standard output may be the fault
        with suppress(OSError):
            print(json.dumps(failure.to_json()), flush=True)
