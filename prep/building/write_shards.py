"""Write shards from a Beam pipeline of the user: the public transform, and its steps on the workers."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from tfshards.prep.building.build import balanced, changes_of_inputs, commit_build, prepare, written_shards
from tfshards.prep.building.commit import complete, confirmed, read_rejects, unless_committed
from tfshards.prep.building.output import (
    claimed,
    dataset_name,
    discard_others,
    output_folder,
    read_damage,
    remove_staged,
)
from tfshards.prep.building.output_state import (
    OutputState,
    check_usable,
    inspect_output,
    is_up_to_date,
    wanted_of,
)
from tfshards.prep.building.planned_build import PlannedBuild
from tfshards.prep.engines.transform import Collection, Transform, run_steps
from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.planning.make_plan import check_option_types, make_plan
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.planning.plan import Layouts, plan_id_of
from tfshards.prep.progress.lines import Reporter, lines_to, nowhere, report_warning
from tfshards.prep.records.values import check_comparable
from tfshards.prep.sources.elements import Elements
from tfshards.prep.sources.spill import Spill, described, keep_described, kept_elements
from tfshards.prep.sources.staged_reader import ROWS_NAME
from tfshards.prep.writing.area import BuildArea, Phase, ShardId
from tfshards.prep.writing.shard import ShardTask, write_shard
from tfshards.schemas import BuildError, InputError, Manifest, OptionsError
from tfshards.schemas.build_area import AREA_NAME
from tfshards.schemas.files import write_atomically
from tfshards.schemas.names import rejects_name
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import RECORD, read_whole

_LOGGER = logging.getLogger("tfshards")


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
    docs/beam.md for counters, retries and what workers need.

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
        elements = Elements((), roles, images, class_names, outside_boxes, boxes_in)
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

    def display_data(self) -> dict[str, str | int]:
        """Return what runners show of the transform."""
        first = self._first
        return {
            "dataset": str(first.folder),
            "name": first.name,
            "seed": first.seed,
            "roles": str(dict(first.elements.roles)),
            "shards": str(first.shards.default or dict(first.shards.by_split)),
        }

    def _steps(self) -> WriteSteps:
        """Return the steps of one run."""
        # on the workers it holds the values of elements, too
        check_usable(inspect_output(self._first.folder))
        return replace(self._first, run_id=secrets.token_hex(4))


def _to_logger(text: str, is_warning: bool) -> None:
    """Log a line on a worker, from which runners collect the log."""
    _LOGGER.log(logging.WARNING if is_warning else logging.INFO, "%s", text)


class _Task(NamedTuple):
    """A shard to write."""

    task: ShardTask
    shard: ShardId


@dataclass(frozen=True)
class WriteSteps:
    """The steps of one run on its workers, each of which may be repeated.

    Between the steps, everything is in files: the staged elements and the build area. When a build is
    committed, or was found complete, there are no files any more, and the following steps do nothing.
    """

    folder: AnyPath
    name: str
    elements: Elements
    shards: ShardCounts
    seed: int
    overwrite: bool
    options: Options
    run_id: str = ""

    @property
    def _staging(self) -> AnyPath:
        # the next build of the dataset removes files with this name, if this one is killed
        return self.folder / AREA_NAME / f"staged-{self.run_id}"

    def bundle(self) -> Spill:
        """Return a bundle, whose values are stored in the folder of this run."""
        return Spill(self.elements, self._staging, is_bundle=True)

    @lines_to(_to_logger)
    def plan(self, descriptions: Iterable[Sequence[Any]]) -> tuple[str, list[_Task]]:
        """Plan the build; return the plan id and the shards to write, none if the dataset is up to date."""
        table = described(descriptions)
        if not table.num_rows:
            raise InputError(
                f"{self.folder}: the PCollection has no elements, so there is nothing to write || check the "
                "steps of the pipeline before WriteShards, such as a filter or a pattern that matches no file"
            )
        with claimed(self.folder) as state:
            # of pipelines that failed or were killed
            remove_staged(self.folder, but=self._staging.name)
            keep_described(table, self._staging)
            build = self._planned()
            plan = build.plan
            report_warning(*plan.warnings)
            wanted = wanted_of(plan)
            if self.overwrite:
                state = read_damage(state, wanted)
            changes = partial(changes_of_inputs, state, plan.listing)
            if is_up_to_date(state, wanted, overwrite=self.overwrite, changes=changes):
                confirmed(state, wanted, is_compared=self.overwrite)
                return plan.plan_id, []
            if self.options.duplicates != "keep":
                check_comparable(plan.listing.schema)
            if not (self._staging / _REPLACED).is_file():
                write_atomically(self._staging / _REPLACED, _build_id(state).encode("ascii"))
            discard_others(state, plan.plan_id, plan.options)
            prepare(build)
            return plan.plan_id, _tasks(build, "first", plan.layouts)

    def write(self, task: _Task) -> int:
        """Write one shard, and return its bytes; attempts do not stop each other: one may be repeated."""
        with task.task.area.attempt_at_shard() as area:
            return write_shard(replace(task.task, area=area), task.shard).shard.num_bytes

    @lines_to(_to_logger)
    def balance(self, plan_id: str) -> list[_Task]:
        """Return the shards to write again because inputs were rejected."""
        with claimed(self.folder) as state:
            if self._committed(state, plan_id):
                return []
            build = self._planned()
            first = build.finished("first", build.plan.layouts)
            layouts, rejects = balanced(build, first)
            return _tasks(build, "final", layouts) if rejects else []

    @lines_to(_to_logger)
    def commit(self, plan_id: str) -> Manifest:
        """Commit the build, and return its manifest."""
        with claimed(self.folder) as state:
            if committed := self._committed(state, plan_id):
                return committed
            build = self._planned()
            wanted = wanted_of(build.plan)
            replaced = read_whole(self._staging / _REPLACED, RECORD).decode("ascii")
            if _build_id(state) not in ("", replaced) and not wanted.is_in(state.manifest):
                raise BuildError("build-overtaken", folder=self.folder, build_id=_build_id(state))
            # takes back the shards that this step placed if it was killed
            build.area.open()
            first = build.finished("first", build.plan.layouts)
            # the step above has logged the same
            with lines_to(nowhere):
                layouts, rejects = balanced(build, first)
            shards = build.finished("final", layouts) if rejects else first
            written = written_shards(build, layouts, shards, rejects)
            return unless_committed(lambda: commit_build(build, written, state), state, build.area, wanted)

    def rejects(self, manifest: Manifest) -> Iterator[tuple[str, str, str]]:
        """Yield key, reason and detail of each input that the committed build rejected."""
        if manifest.rejects_digest:
            for reject in read_rejects(self.folder / rejects_name(manifest.build_id)):
                yield reject[:3]

    def _planned(self) -> PlannedBuild:
        """Return the build of the staged elements; it is the same in each step."""
        reader = kept_elements(self.elements, self._staging, self.options.group_by)
        plan = make_plan(reader, self.name, self.shards, self.seed, self.options)
        return PlannedBuild(
            reader=reader,
            plan=plan,
            area=BuildArea(self.folder, plan.plan_id, plan.options, attempt=self.run_id),
            options=self.options,
        )

    def _committed(self, state: OutputState, plan_id: str) -> Manifest | None:
        """Return the manifest if the build was committed, or was found complete."""
        found = state.manifest
        area = BuildArea(self.folder, plan_id)
        placed = area.placed()
        # in a store the shards stay in the area, and a commit that was killed is made again
        is_placed = placed and not any(area.shards.glob("*.tfrecord-*"))
        is_committed = found and placed and is_placed and placed.build_id == found.build_id
        if not is_committed and (self._staging / ROWS_NAME).is_file():
            return None
        if found and plan_id == plan_id_of(found.name, found.schema, found.options, found.inputs_digest):
            # a step may have been killed after the commit
            complete(found, self.folder, warns=False)
            return found
        raise InputError("staging-gone", root=self._staging)


# the file that holds the build id of the dataset to replace
_REPLACED = "replaced"


def _build_id(state: OutputState) -> str:
    return state.manifest.build_id if state.manifest else ""


def _tasks(build: PlannedBuild, phase: Phase, layouts: Layouts) -> list[_Task]:
    task = build.task(phase, layouts, Reporter())
    return [_Task(task, shard) for shard in build.begin(phase, layouts)]
