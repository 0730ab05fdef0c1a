"""The pipeline of some work: one linear chain, whose workers call the function with the items.

Image bytes never enter it, so neither the shuffle nor the job graph grows with the data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from tfshards.prep.engines.local import Crew
from tfshards.prep.engines.table import Work
from tfshards.prep.engines.transform import Checked
from tfshards.prep.engines.worker import Requirements

_LOGGER = logging.getLogger(__name__)


def pipeline_of(
    work: Work, runner: beam.runners.PipelineRunner, options: PipelineOptions, crew: Crew | None = None
) -> beam.Pipeline:
    """Return the pipeline that calls the function with every item, or lets a crew do so."""
    requirements = None
    # the workers of the local runner are threads of this process
    if work.area is not None and not isinstance(runner, FnApiRunner):
        requirements = Requirements.of(work.area.unfinished_path(""), work.area.attempt, work.sources)
    check = requirements.check if requirements else None
    pipeline = beam.Pipeline(runner, options)
    # PCollection[bytes] -> PCollection[item] -> PCollection[None]
    _ = (
        pipeline
        | beam.Impulse()
        | "List" >> beam.ParDo(_List(check, list(work.items)))
        | "Spread" >> beam.Reshuffle()
        | "Call" >> beam.ParDo(_Call(check, (work.function, work.area), crew))
    )
    return pipeline


class _List(Checked):
    """Yields the items."""

    def process(self, _: bytes) -> Iterator[object]:
        """Yield the items."""
        yield from self.content


class _Call(Checked):
    """Calls the function, unless the build was stopped.

    A call that stopped the build, or was stopped, does not raise: its reason is in the build area, and an
    engine would repeat the task. So the job ends soon, even if nothing cancels it.
    """

    def __init__(self, check: Callable[[], None] | None, content: object, crew: Crew | None) -> None:
        super().__init__(check, content)
        self._crew = crew

    def start_bundle(self) -> None:
        """Start the crew, since the local runner calls from a single thread."""
        self._opened, self._calls = ExitStack(), list[Future[None]]()
        if self._crew:
            self._shared = self._opened.enter_context(self._crew.calling(self.content[0]))
            # its threads end before the crew
            self._pool = self._opened.enter_context(ThreadPoolExecutor(sum(self._crew)))

    def process(self, item: object) -> None:
        """Call the function with one item, or let the crew do so."""
        if self._crew:
            self._calls.append(self._pool.submit(self._call, self._shared, item))
        else:
            self._call(self.content[0], item)

    def finish_bundle(self) -> None:
        """Wait for the crew, and raise its first failure."""
        with self._opened:
            for call in self._calls:
                call.result()

    def _call(self, function: Callable[[object], None], item: object) -> None:
        area = self.content[1]
        if area is not None and area.stop_reason() is not None:
            return
        try:
            function(item)
        except Exception as error:
            if area is None or area.stop_reason() is None:
                if area is not None and self._crew:
                    # nobody needs what the others would write
                    area.stop(str(error))
                raise
            # one that was stopped has not failed, and may end after the build has said its last line
            if getattr(error, "code", None) != "build-stopped":
                # in the log of the worker
                _LOGGER.exception("a task failed")
