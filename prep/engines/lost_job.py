"""Cancel the job of a build that was killed."""

from __future__ import annotations

from tfshards.prep.engines.job import JobNote
from tfshards.prep.progress.lines import report_line, report_warning
from tfshards.schemas.json_reader import load_json
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import RECORD, read_whole


def cancel_lost_job(path: AnyPath) -> None:
    """Cancel the job that an earlier run noted at ``path``, and remove the note.

    That run was killed, or could not cancel the job. The build does not depend on it: the workers of an
    earlier attempt stop when the next one opens the build area.
    """
    try:
        note = JobNote(**load_json(read_whole(path, RECORD)))
    except FileNotFoundError:
        return
    except (ValueError, TypeError):
        path.unlink()
        return
    # Beam takes a second to import
    from tfshards.prep.engines import beam

    try:
        if beam.cancel(note.job_id, note.endpoint):
            report_line(f"cancelled {note}, which an earlier run left")
    except Exception as error:  # whatever it is, the build does not depend on it
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        report_warning(
            f"an earlier run left {note}, which cannot be cancelled ({first_line}); if it still runs "
            "there, its tasks end at their next example"
        )
    path.unlink()
