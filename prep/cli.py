"""The command line, and the only place that knows every verb.

Results go to standard output, talk to standard error. Exit status: 0 done; 2 wrong by reading the command
line alone; 1 anything learned from disk, and faults that verify found; 130 interrupted; 143 by SIGTERM.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import NoReturn, get_args

from tfshards.prep.adoption.verb import add_adopt_verb
from tfshards.prep.arguments import KINDS, add_arguments, settings_of, source_of
from tfshards.prep.audits.findings import Kind
from tfshards.prep.copies.verbs import add_copy_verbs
from tfshards.prep.output import check_output, dataset_name, output_folder, what_is_there
from tfshards.prep.print import forecast_text, info_text, show_text
from tfshards.schemas import (
    MANIFEST_NAME,
    FormatError,
    InputError,
    OptionsError,
    Problem,
    TfshardsError,
    one_line,
    read_manifest,
)
from tfshards.schemas.sizes import size


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # All behind a bare "--" is Beam's.
    own, beam_args = (given, []) if "--" not in given else _cut(given, given.index("--"))
    # Beam and its dependencies warn at import about what this tool does not use.
    logging.basicConfig(level=logging.ERROR)
    try:
        options, unknown = _parser().parse_known_args(own)
        if unknown:
            # by the parser of the verb, whose help lists the options that there are
            options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        verb: Callable[[argparse.Namespace], int] = options.run
        for name in ("src", "table", "root", "out"):
            if getattr(options, name, None) == "":
                raise OptionsError(f"{name.upper()} is empty; give . for the working directory")
        if beam_args and not getattr(options, "takes_beam_args", verb is _build):
            raise OptionsError("only build and append take Beam pipeline options behind --")
        options.beam_args = beam_args
        return verb(options)
    except SystemExit as end:
        # argparse's, after a mistake or --help
        return int(end.code or 0)
    except OptionsError as error:
        return _fail(error, 2)
    except BrokenPipeError:
        # whoever read the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (TfshardsError, OSError) as error:
        return _fail(error, 1)
    except KeyboardInterrupt as error:
        # whatever writes shards can be resumed
        goes_on = {"build", "append", "reshard", "merge"} & set(own[:1])
        print(
            f"\ninterrupted{'; the same command goes on where it ended' if goes_on else ''}", file=sys.stderr
        )
        return 143 if isinstance(error, _Terminated) else 130


class _Terminated(KeyboardInterrupt):
    """Asked to end by SIGTERM, as by a cluster's scheduler: it ends as it does at Ctrl-C."""


def _terminate(_: int, __: FrameType | None) -> NoReturn:
    raise _Terminated


def entry() -> NoReturn:
    """Run the command and leave the process at once, whatever threads a runner has left behind."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # names of files need not be UTF-8, nor the terminal able to show them
        sys.stdout.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminate)
    status = main()
    for stream in (sys.stdout, sys.stderr):
        # either may be closed
        with suppress(BrokenPipeError, AttributeError):
            stream.flush()
    os._exit(status)


def _fail(error: Exception, status: int) -> int:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        named = isinstance(error.filename, (str, bytes))
        text = f"{os.fsdecode(error.filename) if named else 'operating system'}: {error.strerror}"
        text = one_line(text)
    print(f"tfshards: {text}", file=sys.stderr)
    return status


def _cut(given: list[str], at: int) -> tuple[list[str], list[str]]:
    return given[:at], given[at + 1 :]


def _build(options: argparse.Namespace) -> int:
    source = source_of(options)
    shards, settings = settings_of(options)
    # Beam takes about a second to import: only what builds pays for it.
    from tfshards.prep.builder import build

    manifest = build(
        source,
        options.out,
        shards=shards,
        seed=options.seed,
        overwrite=options.overwrite,
        retry_rejected=options.retry_rejected,
        options=settings,
        beam_args=options.beam_args,
    )
    print(manifest.to_text().strip() if options.json else info_text(manifest))
    return 0


def _plan(options: argparse.Namespace) -> int:
    import tempfile

    from tfshards.prep.forecast import forecast

    if options.batch_size < 1:
        raise OptionsError(f"--batch-size {options.batch_size}: must be at least 1")
    source = source_of(options)
    shards, settings = settings_of(options)
    out = output_folder(options.out)
    check_output(out, source)
    with tempfile.TemporaryDirectory() as folder:
        reader = source.stage(Path(folder), preview=True)
        made = forecast(reader, dataset_name(out, settings), shards, options.seed, settings)
    for line in (*(f"warning: {warning}" for warning in made.warnings), *what_is_there(out, made.build_id)):
        print(one_line(line), file=sys.stderr)
    print(forecast_text(made, options.batch_size, as_json=options.json))
    return 0


def _info(options: argparse.Namespace) -> int:
    manifest = read_manifest(options.out)
    print(manifest.to_text().strip() if options.json else info_text(manifest))
    return 0


def _show(options: argparse.Namespace) -> int:
    from tfshards.prep.show import find

    found = find(options.out, options.key)
    print(show_text(found, read_manifest(options.out).schema))
    if options.save:
        images = [f.name for f in read_manifest(options.out).schema.features if f.kind == "image"]
        if not images:
            raise InputError("--save: the dataset has no images")
        data = found.values[images[0]][0]
        assert isinstance(data, bytes)
        Path(options.save).write_bytes(data)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from tfshards.prep.proofs.text import verify_json, verify_text
    from tfshards.prep.proofs.verify import verify

    if options.repair is not None:
        return _repair(options)
    try:
        problems = verify(options.out, deep=options.deep, decode=options.decode)
    except FormatError as error:
        problems = [
            Problem(f"{MANIFEST_NAME}: {problem.place}", problem.message) for problem in error.problems
        ]
    print(verify_json(problems) if options.json else verify_text(options.out, problems))
    return 1 if problems else 0


def _repair(options: argparse.Namespace) -> int:
    from tfshards.prep.proofs.repair import repair
    from tfshards.prep.proofs.text import repair_json, repair_text

    if options.deep or options.decode:
        raise OptionsError(
            "--repair goes by the digests of the files; give --deep or --decode to another run, behind it"
        )
    made = repair(
        options.out, options.repair, talk=lambda line: print(one_line(line), file=sys.stderr, flush=True)
    )
    text = repair_text(options.out, made, is_given=bool(options.repair))
    print(repair_json(made) if options.json else text)
    return 1 if made.left else 0


def _prune(options: argparse.Namespace) -> int:
    from tfshards.prep.prune import prune

    found = prune(options.out, dry_run=options.dry_run)
    done = "would remove" if options.dry_run else "removed"
    for item in found:
        print(one_line(f"{done} {item.path} ({size(item.num_bytes)})"))
    total = size(sum(item.num_bytes for item in found))
    print(one_line(f"{options.out}: {done} {total}" if found else f"{options.out}: nothing to remove"))
    return 0


def _audit(options: argparse.Namespace) -> int:
    from tfshards.prep.audits.audit import audit
    from tfshards.prep.audits.text import audit_json, audit_text

    made = audit(options.out, distance=_distance(options.distance))
    print(json.dumps(audit_json(made)) if options.json else audit_text(made))
    return 1 if any(finding.kind in options.fail_on for finding in made.findings) else 0


def _distance(text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdecimal()):
        raise OptionsError(f"--distance {text}: must be a number of bits, or none")
    return int(text)


class _Parser(argparse.ArgumentParser):
    """Tells a mistake in a line, where argparse would print all options before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, one_line(f"{self.prog}: {message}; see {self.prog} --help") + "\n")


class _MixingParser(_Parser):
    """Takes options between positional arguments, too, of which argparse alone would lose those behind."""

    _is_mixing = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self._is_mixing:
            # older releases parse the two in turns, by this method
            return super().parse_known_args(args, namespace)
        self._is_mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tfshards",
        description="Image folders and arrays to balanced TFRecord shards, and a look at what is in them.",
    )
    parser.add_argument("--version", action="version", version=f"tfshards {version('tfshards')}")
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    for verb, run, text in (
        ("build", _build, "make a dataset, or go on with a build that was stopped"),
        ("plan", _plan, "print what build would make, without reading pixels"),
    ):
        kinds = verbs.add_parser(verb, help=text, description=text).add_subparsers(
            required=True, metavar="INPUT", parser_class=_MixingParser
        )
        for kind in KINDS:
            chosen = kinds.add_parser(kind, help=f"{verb} from {kind}")
            chosen.set_defaults(run=run, kind=kind, parser=chosen)
            add_arguments(chosen, kind)
            (_add_build_options if run is _build else _add_plan_options)(chosen, kind)
    info = _add_verb(verbs, "info", _info, "print what a dataset holds")
    info.add_argument("--json", action="store_true", help="print the manifest")
    show = _add_verb(verbs, "show", _show, "print the example with a key")
    show.add_argument("key", metavar="KEY", help="path relative to the image folder, or row number")
    show.add_argument("--save", metavar="FILE", help="write the encoded image to FILE")
    verify = _add_verb(
        verbs, "verify", _verify, "compare sizes, digests, indexes and labels with the manifest"
    )
    verify.add_argument("--deep", action="store_true", help="read and check every record, too")
    verify.add_argument("--decode", action="store_true", help="also decode every image; implies --deep")
    again = (
        "make damaged files again, and no others, from SRC: the image folder, the arrays, or the table and "
        "the folder of its images that were built; without SRC only indexes and labels, from their shards"
    )
    verify.add_argument("--repair", nargs="*", metavar="SRC", help=again)
    verify.add_argument("--json", action="store_true", help="print all problems as JSON")
    prune = _add_verb(verbs, "prune", _prune, "remove files of earlier and of unfinished builds")
    prune.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    audit = _add_verb(
        verbs, "audit", _audit, "find examples in two splits, double ones, rare classes, odd sizes"
    )
    near = (
        "bits of 256 in which the hashes of nearly the same images differ (32), or none for equal bytes alone"
    )
    audit.add_argument("--distance", default="32", metavar="N", help=near)
    fail_on = "exit 1 if such is found; may be repeated"
    audit.add_argument("--fail-on", action="append", default=[], choices=get_args(Kind), help=fail_on)
    audit.add_argument("--json", action="store_true", help="print all findings")
    add_adopt_verb(verbs)
    add_copy_verbs(verbs, _MixingParser)
    return parser


def _add_build_options(parser: argparse.ArgumentParser, kind: str) -> None:
    add = parser.add_argument
    add("--overwrite", action="store_true", help="replace a dataset of other inputs or options")
    # arrays have no inputs that could be rejected
    parser.set_defaults(retry_rejected=False)
    if kind != "arrays":
        retry = "take in files that OUT has rejected and that were mended since; all else stays as it is"
        add("--retry-rejected", action="store_true", help=retry)
    parser.epilog = (
        "Apache Beam's pipeline options follow behind a bare --, such as: -- --runner=DirectRunner"
    )


def _add_plan_options(parser: argparse.ArgumentParser, _: str) -> None:
    text = "of a worker, for the steps an epoch (32)"
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help=text)


def _add_verb(
    verbs: argparse._SubParsersAction[_Parser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("out", metavar="OUT", help="the dataset's directory")
    parser.set_defaults(run=run, parser=parser)
    return parser


if __name__ == "__main__":
    entry()
