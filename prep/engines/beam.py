"""Run the items on Apache Beam: ``Create``, ``Reshuffle``, and calls on the workers of a runner.

Image bytes never enter the pipeline, so neither the shuffle nor the job graph grows with the data. What a
runner repeats, cancels and logs is up to it.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners import create_runner

from tfshards.prep.engines.transform import Checked
from tfshards.prep.engines.work import Work, share
from tfshards.prep.engines.worker import marked_error, marking_errors, needed_paths
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.progress.threads import STOPPED, StoppedError, check_working, num_jobs
from tfshards.schemas import BuildError, OptionsError
from tfshards.schemas.errors import check_strings
from tfshards.schemas.storage import AnyPath

# DirectRunner would first try to fetch Prism from the internet.
_LOCAL = "FnApiRunner"


def find_run(arguments: Sequence[str]) -> Callable[[Work], None]:
    """Return the function that does work on the runner that the pipeline options name, or on the local one.

    Raises:
        OptionsError: Beam does not accept the options, or its local runner does not know one of them.
    """
    check_strings("beam_args", arguments)
    options = options_of(arguments)

    def check(parser: argparse.ArgumentParser) -> None:
        # by itself, the parser prints all options, and ends the program
        parser.error = _fail  # type: ignore[method-assign]
        _, unknown = parser.parse_known_args(arguments)
        if unknown and _is_local(options):
            _fail(f"its local runner does not know {unknown[0]}")
        # a job service may know them; what begins with no hyphen is a value of one
        report_warning(*(f"Apache Beam does not know {word}" for word in unknown if word.startswith("-")))

    options.get_all_options(add_extra_args_fn=check, retain_unknown_options=True)
    try:
        create_runner(options.view_as(StandardOptions).runner)
    except (ValueError, ImportError, AttributeError) as error:
        _fail(error)
    return partial(run, options=options)


def _fail(message: object) -> NoReturn:
    raise OptionsError(f"Apache Beam: {message}") from None


def _is_local(options: PipelineOptions) -> bool:
    return bool(options.view_as(StandardOptions).runner == _LOCAL)


def options_of(arguments: Sequence[str]) -> PipelineOptions:
    """Return Beam's pipeline options; for its local runner, by default with a thread for each core."""
    runner = PipelineOptions([*arguments]).view_as(StandardOptions).runner or "direct"
    if runner.lower().removesuffix("runner") not in ("direct", "fnapi"):
        return PipelineOptions([*arguments])
    threads = ["--direct_running_mode=multi_threading", f"--direct_num_workers={num_jobs()}"]
    return PipelineOptions([*threads, *arguments, f"--runner={_LOCAL}"])


def run(work: Work, options: PipelineOptions) -> None:
    """Call the function with every item.

    Raises:
        BuildError: a call failed, with the text and code of its error, or Beam ended the pipeline.
    """

    def run_pipeline(_: object) -> None:
        try:
            pipeline_of(work, paths, options).run().wait_until_finish()
        except Exception as failure:
            # it may have the trace of a worker, perhaps within one of Java
            text = str(failure) or repr(failure)
            raise marked_error(failure) or BuildError(_ENDED, *text.splitlines()) from failure

    with needed_paths(work) as paths:
        # in a thread, so that Ctrl-C reaches the main thread, which shows the progress, and not Beam
        share([None], [run_pipeline], work.folder, work.follow)


_ENDED = (
    "Apache Beam ended the pipeline; its job service must answer, and workers need the same tfshards[prep]"
)


def pipeline_of(work: Work, paths: Sequence[AnyPath], options: PipelineOptions) -> beam.Pipeline:
    """Return the pipeline that calls the function with every item."""
    pipeline = beam.Pipeline(options=options)
    call = partial(_call, work.function, work.folder, _is_local(options))
    # PCollection[bytes] -> PCollection[None]
    _ = (
        pipeline
        | beam.Create([pickle.dumps(item) for item in work.items], reshuffle=False)
        | beam.Reshuffle()
        | "Call" >> beam.ParDo(_Call(call, paths))
    )
    return pipeline


class _Call(Checked):
    """Calls a function; the text of an error has its class and code."""

    def setup(self) -> None:
        """Check the worker."""
        with marking_errors():
            super().setup()

    def process(self, element: bytes) -> None:
        """Call the function with an item."""
        with marking_errors():
            self.function(element)


def _call(function: Callable[[Any], object], folder: AnyPath, is_local: bool, item: bytes) -> None:
    # a call that was stopped is not the failure
    with suppress(StoppedError):
        check_working(folder)
        try:
            function(pickle.loads(item))
        except Exception:
            if is_local:
                # this runner repeats no call, and would first wait for all calls of another thread
                STOPPED.add(folder)
            raise
