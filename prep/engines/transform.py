"""Run the steps of a build inside a Beam pipeline of the user: a chain that every runner supports.

It has no side inputs, state, timers, tagged outputs or outputs at the end of a bundle, and forks only after
the commit. Runners may repeat or duplicate any call, so each step must give the same result when it is called
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import apache_beam as beam
from apache_beam.coders import CloudpickleCoder
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindows

from tfshards.prep.engines.worker import check_worker, own_versions
from tfshards.schemas import Manifest, OptionsError
from tfshards.schemas.storage import AnyPath

# for annotations and base classes in other files, which do not import Beam
Collection: TypeAlias = beam.PCollection
Transform: TypeAlias = beam.PTransform

# what the runner shuffles of an element: its description, after a constant key
Described: TypeAlias = "tuple[bytes, tuple[object, ...] | None]"
# a build, and a shard of it to write; none so that the runner calls the following steps without shards, too
Assigned: TypeAlias = "tuple[str, Any]"


class _Bundle(Protocol):
    def describe(self, key: object, values: object) -> tuple[object, ...]: ...
    def close(self) -> None: ...


class _Steps(Protocol):
    """The steps of ``WriteShards``, which describes them."""

    def bundle(self) -> _Bundle: ...
    def plan(self, group: tuple[bytes, Iterable[Any]]) -> Iterator[Assigned]: ...
    def write(self, assigned: Assigned) -> Iterator[Assigned]: ...
    def balance(self, group: tuple[str, object]) -> Iterator[Assigned]: ...
    def commit(self, group: tuple[str, object]) -> Iterator[Manifest]: ...
    def rejects(self, manifest: Manifest) -> Iterator[tuple[str, str, str]]: ...


def run_steps(elements: Collection, steps: _Steps) -> tuple[Collection, Collection]:
    """Return a PCollection of the manifest, and one of what was rejected.

    Raises:
        OptionsError: the elements are unbounded, so that they are never complete.
    """
    if not elements.is_bounded:
        raise OptionsError("the elements are unbounded, so they are never complete; use a bounded source")
    described = (
        elements
        | "Describe" >> beam.ParDo(_Describe(steps.bundle)).with_output_types(tuple[bytes, Any])
        # one group of all elements, whatever their windows
        | "WindowAll" >> beam.WindowInto(GlobalWindows())
    )
    # without an element, the runner would not call the steps, and the pipeline would succeed
    mark = elements.pipeline | "Mark" >> beam.Create([(b"", None)]).with_output_types(tuple[bytes, Any])
    # [Described] -> [(b"", descriptions)] -> [Assigned] -> [(build, None)] -> [(build, Nones)] -> [Assigned]
    # -> ... -> [manifest]
    written = (
        (described, mark)
        | "WithMark" >> beam.Flatten()
        | "GatherElements" >> beam.GroupByKey()
        | "Plan" >> step(steps.plan, tuple[str, Any])
        | "SpreadFirst" >> beam.Reshuffle()
        | "WriteFirst" >> step(steps.write, tuple[str, Any])
        | "GatherFirst" >> beam.GroupByKey()
        | "Balance" >> step(steps.balance, tuple[str, Any])
        | "SpreadFinal" >> beam.Reshuffle()
        | "WriteFinal" >> step(steps.write, tuple[str, Any])
        | "GatherFinal" >> beam.GroupByKey()
        | "Commit" >> step(steps.commit, Manifest)
    )
    return written, written | "ListRejected" >> step(steps.rejects, tuple[str, str, str])


def count(numbers: Mapping[str, int], milliseconds: int | None = None) -> None:
    """Add to counters of the pipeline, and, for a shard, the time that it took."""
    for name, number in numbers.items():
        Metrics.counter("tfshards", name).inc(number)
    if milliseconds is not None:
        Metrics.distribution("tfshards", "shard_milliseconds").update(milliseconds)


def step(function: Callable[[Any], Iterator[object]], output: object) -> beam.ParDo:
    """Return what calls a function with each element, and outputs what it yields."""
    return beam.ParDo(Checked(function)).with_output_types(output)


class Checked(beam.DoFn):  # type: ignore[misc]
    """Calls a function, on a worker that it checks before it unpickles anything of tfshards.

    The classes of this module are pickled by name, so that this much runs on a worker of any version.

    Attributes:
        function: the function; it is pickled separately.
    """

    def __init__(self, function: Callable[..., Any], paths: Sequence[AnyPath] = ()) -> None:
        """Take the function, and what a worker must see."""
        super().__init__()
        self._needed = own_versions(), paths
        self._packed = CloudpickleCoder().encode(function)

    def setup(self) -> None:
        """Check the worker; runners call this once before the first element."""
        check_worker(*self._needed)
        self.function: Callable[..., Any] = CloudpickleCoder().decode(self._packed)

    def process(self, element: Any) -> Iterator[object] | None:  # noqa: ANN401
        """Yield what the function yields."""
        found: Iterator[object] = self.function(element)
        return found


class _Describe(Checked):
    """Describes elements in a bundle, which the function returns."""

    def start_bundle(self) -> None:
        """Begin a bundle; what one that failed has left is not used."""
        self._bundle: _Bundle = self.function()

    def process(self, element: tuple[object, object]) -> Iterator[Described]:
        """Yield the description of an element."""
        # Beam encodes plain tuples in fewer bytes
        yield b"", tuple(self._bundle.describe(*element))

    def finish_bundle(self) -> None:
        """Finish the bundle; nothing is output here, which some runners would lose."""
        self._bundle.close()
