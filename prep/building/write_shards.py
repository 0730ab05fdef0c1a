"""Write shards from a Beam pipeline of the user: the public transform, and its steps on the workers."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tfshards.prep.building.build import SourceBuild
from tfshards.prep.building.commit import build_overtaken, conclude, prepare
from tfshards.prep.building.output import claimed, dataset_name, output_folder
from tfshards.prep.building.rejects import read_rejects
from tfshards.prep.building.state import OutputState, check_usable, inspect_output, plan_of
from tfshards.prep.engines.transform import Assigned, Collection, Transform, count, run_steps
from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.planning.make_plan import check_option_types, make_plan
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.sources.examples import (
    Bundle,
    Description,
    Examples,
    described,
    keep_described,
    kept_elements,
)
from tfshards.prep.sources.staged_reader import ROWS_NAME
from tfshards.prep.sources.staging_folder import staged_name, staging_gone
from tfshards.prep.writing.build_folder import BuildFolder, ShardId
from tfshards.prep.writing.shard import ShardTask, write_shard
from tfshards.schemas import InputError, Manifest, OptionsError
from tfshards.schemas.names import RECORD_NAME
from tfshards.schemas.storage import AnyPath


class WriteShardsResult(NamedTuple):
    """What ``WriteShards`` returns.

    Attributes:
        written: PCollection of one ``Manifest``, that of the dataset, which is committed.
        rejected: PCollection of ``(key, reason, detail)``, three strings for each rejected element, as the
            dataset lists them.
    """

    written: Collection
    rejected: Collection


class WriteShards(Transform):  # type: ignore[misc]
    """Write the elements of a PCollection as a dataset, in your own Beam pipeline.

    The elements are ``(key, features)``: a string, and a dict of values by name, as in ``Examples``: NumPy
    arrays, numbers, ``str``, ``bytes``, lists, and images. Every element has the same names, each with one
    dtype and shape. The key becomes the feature ``key``. The dataset is as ``build`` makes it: balanced
    shards, the same bytes for the same elements in any order, on any runner and any number of workers,
    committed by its manifest. Beam shuffles only a description of about 100 bytes per element: the values are
    written to files in the folder of the dataset, and read from there. Every worker must see that folder
    under the same path, or reach its bucket.

    The result is a ``WriteShardsResult``. If the folder already holds this build, nothing is written. See
    docs/clusters.md for counters, retries and what workers need.

    Args:
        dataset: folder of the dataset, or its URL in an object store; created if it does not exist.
        roles: role of each value whose name does not decide it, such as ``{"photo": "image", "y": "label"}``.
            ``file_name``, ``image``, ``label`` and ``split`` need none; other values are stored as they are.
        images: how images are checked, converted and stored.
        class_names: class names in label order; by default the sorted names in the data, if there are names.
        outside_boxes: what to do about boxes and keypoints outside of their image: ``reject``, ``clip`` or
            ``keep``.
        boxes_in: whether boxes and keypoints of turned images refer to the pixels in the ``file`` or to the
            ``upright`` image.
        shards: number of shards of every split, or a dict of them by split; by default as many as
            ``options.shard_size`` gives.
        seed: random seed for the order of examples and for splits by ratio.
        overwrite: replace a dataset with other elements or options, or with damaged files; it stays complete
            until the commit.
        options: all other options; ``group_by`` is a regular expression with one group, for the keys.

    Raises:
        OptionsError: an argument is not valid.
        InputError: the folder holds other files than a dataset. When the pipeline runs: the elements or the
            dataset in the folder do not allow the build, or there are no elements.
        BuildError: when the pipeline runs: too many images are rejected, or another build of the dataset was
            committed in the meantime.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str],
        roles: Mapping[str, str] | None = None,
        images: ImageOptions | None = None,
        *,
        class_names: Sequence[str] | None = None,
        outside_boxes: Outside = "reject",
        boxes_in: Reference | None = None,
        shards: Shards = None,
        seed: int = 0,
        overwrite: bool = False,
        options: Options | None = None,
    ) -> None:
        super().__init__()
        roles = {} if roles is None else roles
        images = ImageOptions() if images is None else images
        options = Options() if options is None else options
        elements = Examples((), roles, images, class_names, outside_boxes, boxes_in)
        if "key" in roles.values():
            raise OptionsError(
                "roles: the key of an element is the first of the pair, so no value has the role key"
            )
        check_option_types(seed, options)
        counts = ShardCounts.of(shards, options.shard_size)
        # workers may run in other folders
        folder = output_folder(dataset).absolute()
        name = dataset_name(folder, options)
        self._first = WriteSteps(folder, name, elements, counts, seed, overwrite, options)
        # Beam compares them with the type of the PCollection when the pipeline is made
        self.with_input_types(tuple[str, Mapping[str, Any]])

    def expand(self, elements: Collection) -> WriteShardsResult:
        """Return the PCollections of the result; see the class."""
        return WriteShardsResult(*run_steps(elements, self._steps()))

    def _steps(self) -> WriteSteps:
        """Return the steps of one run."""
        # on the workers it holds the values of elements, too
        check_usable(inspect_output(self._first.folder))
        return replace(self._first, run_id=secrets.token_hex(4))


@dataclass(frozen=True)
class WriteSteps:
    """The steps of one run on its workers, each of which may be repeated.

    Between the steps, everything is in files: the staged elements and the folder of the build. A ``build``
    that goes from step to step is the name of that folder, and of the build that it replaces. When it is
    committed, or was found complete, the staged files are gone, and the following steps do nothing.
    """

    folder: AnyPath
    name: str
    elements: Examples
    shards: ShardCounts
    seed: int
    overwrite: bool
    options: Options
    run_id: str = ""

    @property
    def _staging(self) -> AnyPath:
        # the next build of the dataset removes files with this name, if this one is killed
        return self.folder / staged_name(self.run_id)

    def bundle(self) -> Bundle:
        """Return a bundle, whose values are stored in the folder of this run."""
        return Bundle(self.elements, self._staging, has_others=True)

    def plan(self, group: tuple[bytes, Iterable[Description | None]]) -> Iterator[Assigned]:
        """Plan the build; yield the shards to write, none if the dataset is up to date."""
        table = described(each for each in group[1] if each is not None)
        if not table.num_rows:
            raise InputError(
                f"{self.folder}: the PCollection has no elements, so there is nothing to write; check the "
                "steps of the pipeline before WriteShards, such as a filter or a pattern that matches no "
                "file"
            )
        with claimed(self.folder, self._staging.name) as state:
            keep_described(table, self._staging)
            job = self._job()
            report_warning(*job.plan.warnings)
            target = prepare(job, state, overwrite=self.overwrite)
            if isinstance(target, Manifest):
                self._remove_staging()
                yield f"{target.folder} {target.folder}", None
                return
            missing, task = job.begin(target), job.task(target)
        yield from _assigned(f"{target.name} {state.current}", task, missing)

    def write(self, assigned: Assigned) -> Iterator[Assigned]:
        """Write one shard."""
        build, task = assigned
        if task is not None:
            begun = time.monotonic()
            count({"bytes": self._write(*task)}, round(1000 * (time.monotonic() - begun)))
        yield build, None

    def _write(self, task: ShardTask, shard: ShardId) -> int:
        """Write one shard, and return its bytes."""
        try:
            return write_shard(task, shard).shard.num_bytes
        except FileNotFoundError:
            if task.folder.is_complete:
                # a task that a runner repeats after the commit
                return 0
            raise staging_gone(self._staging) from None

    def balance(self, group: tuple[str, object]) -> Iterator[Assigned]:
        """Yield the shards to write again because inputs were rejected."""
        with claimed(self.folder, self._staging.name) as state:
            target = self._resumed(state, group[0])
            if isinstance(target, Manifest):
                yield group[0], None
                return
            job = self._job()
            missing, task = job.balance(target), job.task(target)
        yield from _assigned(group[0], task, missing)

    def commit(self, group: tuple[str, object]) -> Iterator[Manifest]:
        """Commit the build, and yield its manifest."""
        with claimed(self.folder, self._staging.name) as state:
            target = self._resumed(state, group[0])
            if isinstance(target, BuildFolder):
                job = self._job()
                target = conclude(job, target, job.draft(target), state, overwrite=self.overwrite)
            self._remove_staging()
        totals = target.totals
        reasons = {f"rejected_{name.replace(' ', '_')}": n for name, n in totals.reasons["rejected"].items()}
        count({"accepted": totals.accepted, "rejected": totals.rejected, **reasons})
        yield target

    def rejects(self, manifest: Manifest) -> Iterator[tuple[str, str, str]]:
        """Yield key, reason and detail of each input that the committed build rejected."""
        for reject in read_rejects(self.folder, manifest):
            yield reject[:3]

    def _job(self) -> SourceBuild:
        """Return the build of the staged elements; it is the same in each step."""
        # tasks hold this reader: runners pickle them by other means than functions
        reader = kept_elements(self.elements, self._staging, self.options.group_by)
        plan = make_plan(reader, self.name, self.shards, self.seed, self.options)
        return SourceBuild(plan=plan, reader=reader, options=self.options)

    def _resumed(self, state: OutputState, build: str) -> Manifest | BuildFolder:
        """Return the folder of a build that goes on; the manifest if it is committed.

        Raises:
            BuildError: another build was committed since this one has begun, or has begun.
        """
        name, _, replaced = build.partition(" ")
        has_inputs = (self._staging / ROWS_NAME).is_file()
        is_same = plan_of(state.current) == plan_of(name)
        # without its inputs, it was found complete, or has the same content as an earlier one
        if state.manifest and is_same and (state.current != replaced or not has_inputs):
            return state.manifest
        if state.current not in ("", replaced):
            raise build_overtaken(state)
        if not has_inputs:
            raise staging_gone(self._staging)
        return BuildFolder(self.folder, name)

    def _remove_staging(self) -> None:
        self._staging.delete_tree(RECORD_NAME)


def _assigned(build: str, task: ShardTask, shards: Iterable[ShardId]) -> Iterator[Assigned]:
    yield build, None
    for shard in shards:
        yield build, (task, shard)
