"""Two builds of one output in an object store, which has no locks: one commits, and the other reports it."""

from __future__ import annotations

from collections.abc import Callable

from tfshards.prep.building.decisions import Wanted
from tfshards.prep.building.output_state import OutputState, inspect_output
from tfshards.prep.progress.lines import Log
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import BuildError, IncompleteError, Manifest
from tfshards.schemas.storage import RemotePath


def unless_committed(
    write: Callable[[], Manifest], state: OutputState, area: BuildArea, wanted: Wanted | None, log: Log
) -> Manifest:
    """Return what ``write`` returns or, if another run has committed the same build meanwhile, its manifest.

    A build writes no committed file with other bytes and removes none, so that whatever it did before it
    failed, the dataset of the other one is complete.

    Args:
        write: writes and commits a build.
        state: the output before the build.
        area: the build area.
        wanted: the build, if its manifest can be recognized.
        log: receives a line about the other run.

    Raises:
        BuildError: another build was committed meanwhile; or what ``write`` raised.
    """
    try:
        return write()
    except IncompleteError:
        raise
    except (BuildError, OSError) as failure:
        if not isinstance(state.folder, RemotePath):
            raise
        now = inspect_output(state.folder)
        if now.version == state.version or now.manifest is None:
            why = area.stop_reason()
            if why:
                # what failed may only be a consequence of it
                raise BuildError("build-failed", text=why) from failure
            raise
        if wanted and wanted.is_in(now.manifest):
            # what this run has written since the other one removed it
            area.remove()
            log(f"{state.folder}: another run of the same build has committed it meanwhile")
            return now.manifest
        raise BuildError("build-overtaken", folder=state.folder, build_id=now.manifest.build_id) from failure
