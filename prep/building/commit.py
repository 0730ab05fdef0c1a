"""Complete the folder of a build, and make it the dataset: the pointer is the commit.

    1. shards and companions have their names and are flushed
    2. 3f9a2c1b/rejected.jsonl, labels.txt, …     small files, then the names of all files are flushed
    3. 3f9a2c1b/dataset.json                      the build is complete
    4. dataset.json                               the same bytes: the build is the dataset
    5. 3f9a2c1b/work/ is removed

A crash leaves the old dataset before step 4, and the new one afterwards. The same command does what is
missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfshards.prep.building.rejects import with_lists
from tfshards.prep.building.state import (
    OutputState,
    Wanted,
    check_replaceable,
    damage_of,
    inspect_output,
    plain_folder,
    plain_name,
)
from tfshards.prep.building.write import Draft, Job
from tfshards.prep.progress.lines import report_line
from tfshards.prep.sources.staging_folder import staged_folder, unfinished_in
from tfshards.prep.views.files import view_files
from tfshards.prep.writing.build_folder import BuildFolder, FinishedShard, ShardId
from tfshards.schemas import BuildError, InputError, Manifest, Problem
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.errors import counted
from tfshards.schemas.manifest import OTHER_BYTES, parse_manifest
from tfshards.schemas.names import MANIFEST_NAME
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.stored import METADATA


def produce(job: Job, state: OutputState, *, overwrite: bool = False) -> Manifest:
    """Make a job the dataset of a locked output, and return its manifest.

    Nothing is written if it is the dataset already, except its damaged shards, with the bytes that they had.
    If the stamps of inputs have changed, all shards are written into another folder, which is removed if the
    content is the same.

    Raises:
        InputError, FormatError: see ``check_replaceable``; or the content has changed, and ``overwrite`` is
            false.
        BuildError: another build was committed meanwhile; or the job failed.
    """
    target = prepare(job, state, overwrite=overwrite)
    if isinstance(target, Manifest):
        return target
    try:
        return conclude(job, target, job.write(target), state, overwrite=overwrite)
    except (BuildError, OSError) as failure:
        now = overtaken(state, failure)
        if now.current != target.name:
            raise build_overtaken(now) from failure
    report_line(f"{state.folder}: another run of the same build has committed it meanwhile")
    return produce(job, now, overwrite=overwrite)


def prepare(job: Job, state: OutputState, *, overwrite: bool) -> Manifest | BuildFolder:
    """Return the manifest of a job that is the dataset now, or the folder into which it is to be written."""
    wanted = job.wanted
    check_replaceable(state, wanted, overwrite=overwrite)
    complete = _complete_builds(state, wanted)
    same = [each for each in complete if job.trusts_times and each[0].record()[1] == job.stamps]
    if same:
        build, manifest = same[0]
        if not overwrite and _is_other(state, manifest):
            raise _of_other_inputs(state)
        # of a build that is the dataset, a command looks at all bytes only if it is told to
        damage = damage_of(state.folder, manifest, is_compared=overwrite or manifest != state.manifest)
        if build.manifest() is None:
            damage.append(Problem(f"{build.name}/{MANIFEST_NAME}", OTHER_BYTES))
        if not damage or _is_repaired(job, build, manifest, damage):
            return commit(build, manifest, state)
    elif complete:
        report_line(f"inputs may have changed since {state.folder} was built: writing it again")
    target = state.new_folder(wanted.plan_id)
    others = [each.name for each in state.folders if state.is_unfinished(each) and each != target]
    if others and not state.fault:
        report_line(f"unfinished builds are left, which 'tfshards prune' removes: {', '.join(others)}")
    target.create(wanted.options, job.stamps)
    if not job.trusts_times:
        # what an earlier run has written may be of inputs that were replaced since
        target.remove_work()
    return target


def _is_repaired(job: Job, build: BuildFolder, manifest: Manifest, damage: Sequence[Problem]) -> bool:
    """Write the damaged files of a complete build again, with the bytes that they had.

    Return False if its lists are damaged, without which all inputs have to be read.

    Raises:
        InputError: the inputs give other bytes now, or a file of another build is damaged.
    """
    more = f", and {counted(len(damage) - 1, 'other file')}" if len(damage) > 1 else ""
    report_line(f"repairing {build.root}: {damage[0]}{more}")
    left = {problem.place for problem in damage}
    for place in sorted(left):
        if plain_folder(place) != build.name:
            raise InputError(
                f"{build.dataset / place} is damaged, which another build wrote; 'tfshards verify "
                f"{build.dataset} --repair' repairs it, or names the command that does"
            )
    shards = {plain_name(shard.path): shard for shard in manifest.shards if left & {*shard.files}}
    small = {
        name: data
        for name, data in view_files(manifest).items()
        if manifest.views.get(f"{build.name}/{name}") == bytes_digest(data)
    }
    small[MANIFEST_NAME] = manifest.to_text().encode("ascii")
    left -= {path for shard in shards.values() for path in shard.files}
    if left - {f"{build.name}/{name}" for name in small}:
        return False
    with staged_folder(build.dataset) as work:
        target = replace(build, elsewhere=work.name)
        target.open()
        if shards:
            job.repair(target, manifest, shards)
        target.put_all({name: small[name] for name in map(plain_name, left)})
        build.root.sync("index")
    return True


def conclude(job: Job, target: BuildFolder, draft: Draft, state: OutputState, *, overwrite: bool) -> Manifest:
    """Make what was written the dataset, and return its manifest.

    If an earlier build of the same plan has the same content, that is the dataset: it is repaired, and what
    was written is removed.

    Raises:
        InputError: inputs have other content than those of a build of the same plan, and ``overwrite`` is
            false.
    """
    manifest, files = with_lists(draft.manifest, draft.rejects, draft.removed)
    manifest = replace(manifest, build_id=manifest.content_id())
    for build, twin in _complete_builds(state, job.wanted):
        if twin.build_id != manifest.build_id or (not overwrite and _is_other(state, twin)):
            continue
        damage = damage_of(state.folder, twin, is_compared=True)
        if not damage or _is_repaired(job, build, twin, damage):
            report_line(f"the content is the same as before (build {twin.build_id})")
            # in this order: what is left if this ends here is written and compared again
            target.remove()
            build.create(job.wanted.options, job.stamps)
            return commit(build, twin, state)
    if not overwrite and job.wanted.is_in(state.manifest) and _is_other(state, manifest):
        raise _of_other_inputs(state)
    manifest = finish(target, manifest, files, draft.finished, job)
    manifest = commit(target, manifest, state)
    draft.report(manifest)
    return manifest


def _complete_builds(state: OutputState, wanted: Wanted) -> list[tuple[BuildFolder, Manifest]]:
    """Return the complete builds of a plan with their manifests, that of the dataset first."""
    of_plan = state.builds_of(wanted.plan_id)
    found = [
        (build, manifest) for build, manifest in state.generations.items() if manifest and build in of_plan
    ]
    return sorted(found, key=lambda each: each[1] != state.manifest)


def _is_other(state: OutputState, manifest: Manifest) -> bool:
    """Return whether a build is not the one that is the dataset, such as one before ``restore``."""
    return state.manifest is not None and state.manifest.build_id != manifest.build_id


def _of_other_inputs(state: OutputState) -> InputError:
    """Return the error about a build of the dataset's plan, from inputs with other content."""
    return InputError(
        f"{state.folder} holds a dataset with other inputs: their content has changed; give overwrite=True "
        "to replace it, or choose another output",
        code="dataset-differs",
    )


def finish(
    target: BuildFolder,
    manifest: Manifest,
    files: Mapping[str, bytes],
    finished: Mapping[ShardId, FinishedShard],
    job: Job,
) -> Manifest:
    """Write the last files of a build, which is complete then, and return its manifest.

    Raises:
        BuildError: in a store, another run of the same build has replaced a shard.
        FormatError, InputError: the manifest could not be read again.
    """
    views = view_files(manifest)
    manifest = replace(
        manifest, views={f"{target.name}/{name}": bytes_digest(data) for name, data in views.items()}
    )
    path, text = target.root / MANIFEST_NAME, manifest.to_text().encode("ascii")
    check_readable(text, path)
    written = list(finished.values())
    if target.root.is_far:
        for done, is_intact in zip(written, target.intact(written), strict=True):
            if not is_intact:
                raise BuildError(
                    f"{target.dataset / done.shard.path}: another run of the same build replaced it; when "
                    "that run has ended, run the same command again",
                    code="build-overtaken",
                )
    # in a store, another run of the plan may have recorded other stamps
    target.create(job.wanted.options, job.stamps)
    target.open()
    target.put_all({**files, **views})
    target.root.sync("index")
    path.put(text, target.work)
    target.root.sync()
    return manifest


def check_readable(text: bytes, path: AnyPath) -> None:
    """Raise FormatError or InputError about the text of a manifest that could not be read again."""
    try:
        METADATA.check(len(text), path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", code="unreadable") from None
    parse_manifest(text.decode("ascii"), str(path))


def commit(build: BuildFolder, manifest: Manifest, state: OutputState) -> Manifest:
    """Make a complete build the dataset, and return its manifest.

    Raises:
        ChangedError, FileExistsError: another process has written the pointer in a store.
    """
    folder, old = state.folder, state.manifest
    if old != manifest:
        text = manifest.to_text().encode("ascii")
        with unfinished_in(folder) as unfinished:
            (folder / MANIFEST_NAME).replace_if(text, state.version, unfinished)
            folder.sync()
        if old is not None:
            report_line(
                f"kept {old.folder}, the previous generation: 'tfshards restore {folder} {old.folder}' makes "
                f"it the dataset again, 'tfshards prune {folder}' removes it"
            )
    else:
        report_line(f"{folder} is up to date")
    build.remove_work()
    # Changes after the last sync may be in any state. That these are removals of no importance does not help
    # where e2fsck (1.47.0) replays fast commits of ext4: it then lost the dataset.
    folder.sync(build.name)
    return manifest


def overtaken(state: OutputState, failure: BuildError | OSError) -> OutputState:
    """Return the state of an output in which another run has committed meanwhile, or raise the failure.

    Two builds in a store may run at the same time. Builds of one plan write the same bytes under the same
    keys, others have other folders, and the pointer is replaced only by the first of them that ends.
    """
    if state.folder.is_far:
        now = inspect_output(state.folder)
        if now.version != state.version and now.manifest is not None:
            return now
    raise failure


def build_overtaken(now: OutputState) -> BuildError:
    """Return the error about another build that was committed meanwhile."""
    return BuildError(
        f"{now.folder}: another build ({now.current}) was committed in the meantime, so this one was not; "
        "to replace that dataset, run the same command again with overwrite=True",
        code="build-overtaken",
    )
