"""Run the steps of a build inside a Beam pipeline of the user: a chain that every runner supports.

It has no side inputs, state, timers, tagged outputs or outputs at the end of a bundle, and forks only after
the commit. Runners may repeat or duplicate any call, so each step must give the same result when it is called
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindows

from tfshards.prep.engines.worker import check_worker, own_versions
from tfshards.schemas import Manifest, OptionsError
from tfshards.schemas.storage import AnyPath

# of the metrics
NAMESPACE = "tfshards"

# for annotations and base classes in other files, which do not import Beam
Collection: TypeAlias = beam.PCollection
Transform: TypeAlias = beam.PTransform
Task = TypeVar("Task")


class _Bundle(Protocol):
    # the description of an element is all that the runner shuffles of it
    def describe(self, key: object, values: object) -> tuple[object, ...]: ...
    def close(self) -> None: ...


class _Steps(Protocol[Task]):
    """The steps of ``WriteShards``, which describes them."""

    def bundle(self) -> _Bundle: ...
    def plan(self, descriptions: Iterable[tuple[object, ...]]) -> tuple[str, Iterable[Task]]: ...
    def write(self, task: Task) -> int: ...
    def balance(self, build: str) -> Iterable[Task]: ...
    def commit(self, build: str) -> Manifest: ...
    def rejects(self, manifest: Manifest) -> Iterable[tuple[str, str, str]]: ...


def run_steps(elements: Collection, steps: _Steps[Any]) -> tuple[Collection, Collection]:
    """Return a PCollection of the manifest, and one of what was rejected.

    Raises:
        OptionsError: the elements are unbounded, so that they are never complete.
    """
    if not elements.is_bounded:
        raise OptionsError("the elements are unbounded, so they are never complete; use a bounded source")
    # PCollection[element] -> [(b"", description)] -> [(b"", descriptions)] -> [(build, task or None)]
    # -> [(build, None)] -> [(build, Nones)] -> [(build, task or None)] -> ... -> [manifest]
    described = (
        elements
        | "Describe" >> beam.ParDo(_Describe(steps)).with_output_types(_DESCRIBED)
        # one group of all elements, whatever their windows
        | "WindowAll" >> beam.WindowInto(GlobalWindows())
    )
    # without an element, the runner would not call the steps, and the pipeline would succeed
    mark = elements.pipeline | "Mark" >> beam.Create([(b"", None)]).with_output_types(_DESCRIBED)
    written = (
        (described, mark)
        | "WithMark" >> beam.Flatten()
        | "GatherElements" >> beam.GroupByKey()
        | "Plan" >> step(_plan, steps, tuple[str, Any])
        | "SpreadFirst" >> beam.Reshuffle()
        | "WriteFirst" >> step(_write, steps, tuple[str, Any])
        | "GatherFirst" >> beam.GroupByKey()
        | "Balance" >> step(_balance, steps, tuple[str, Any])
        | "SpreadFinal" >> beam.Reshuffle()
        | "WriteFinal" >> step(_write, steps, tuple[str, Any])
        | "GatherFinal" >> beam.GroupByKey()
        | "Commit" >> step(_commit, steps, Manifest)
    )
    return written, written | "ListRejected" >> step(_list_rejected, steps, tuple[str, str, str])


_DESCRIBED = tuple[bytes, Any]


def _plan(
    steps: _Steps[Task], group: tuple[bytes, Iterable[tuple[object, ...] | None]]
) -> Iterator[tuple[str, Task | None]]:
    yield from _elements(*steps.plan(each for each in group[1] if each is not None))


def _elements(build: str, tasks: Iterable[Task]) -> Iterator[tuple[str, Task | None]]:
    # without an element, the runner would not call the following steps
    yield build, None
    for task in tasks:
        yield build, task


def _write(steps: _Steps[Task], assigned: tuple[str, Task | None]) -> Iterator[tuple[str, None]]:
    build, task = assigned
    if task is not None:
        begun = time.monotonic()
        _count({"bytes": steps.write(task)})
        milliseconds = round(1000 * (time.monotonic() - begun))
        Metrics.distribution(NAMESPACE, "shard_milliseconds").update(milliseconds)
    yield build, None


def _balance(steps: _Steps[Task], group: tuple[str, object]) -> Iterator[tuple[str, Task | None]]:
    yield from _elements(group[0], steps.balance(group[0]))


def _commit(steps: _Steps[Any], group: tuple[str, object]) -> Iterator[Manifest]:
    manifest = steps.commit(group[0])
    totals = manifest.totals
    _count({"accepted": totals.accepted, "rejected": totals.rejected})
    for reason, number in totals.reasons["rejected"].items():
        _count({f"rejected_{reason.replace(' ', '_')}": number})
    yield manifest


def _list_rejected(steps: _Steps[Any], manifest: Manifest) -> Iterator[tuple[str, str, str]]:
    yield from steps.rejects(manifest)


def _count(numbers: Mapping[str, int]) -> None:
    for name, number in numbers.items():
        Metrics.counter(NAMESPACE, name).inc(number)


def step(function: Callable[[Any, Any], Iterator[object]], content: object, output: object) -> beam.ParDo:
    """Return what calls a function with the content and each element, and outputs what it yields."""
    return beam.ParDo(_Step((function, content))).with_output_types(output)


class Checked(beam.DoFn):  # type: ignore[misc]
    """A function of a pipeline that checks the worker before it unpickles anything of tfshards.

    The classes of this module are pickled by name, so that this much runs on a worker of any version.

    Attributes:
        content: what the function needs; it is pickled separately.
    """

    def __init__(self, content: object, paths: Sequence[AnyPath] = ()) -> None:
        """Take the content, and what a worker must see."""
        super().__init__()
        self._needed = own_versions(), paths
        self._packed = pickler.dumps(content)

    def setup(self) -> None:
        """Check the worker; runners call this once before the first element."""
        check_worker(*self._needed)
        self.content: Any = pickler.loads(self._packed)


class _Describe(Checked):
    """Describes elements."""

    def start_bundle(self) -> None:
        """Begin a bundle; what one that failed has left is not used."""
        self._bundle = self.content.bundle()

    def process(self, element: tuple[object, object]) -> Iterator[tuple[bytes, object]]:
        """Yield the description of an element."""
        # Beam encodes plain tuples in fewer bytes
        yield b"", tuple(self._bundle.describe(*element))

    def finish_bundle(self) -> None:
        """Finish the bundle; nothing is output here, which some runners would lose."""
        self._bundle.close()


class _Step(Checked):
    """Calls a function; see ``step``."""

    def process(self, element: object) -> Iterator[object]:
        """Yield what the function yields."""
        function, content = self.content
        yield from function(content, element)
