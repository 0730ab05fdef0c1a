"""How the workers of a build stop together: a failure of one is noted, and the others look for the note."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import BuildError, TfshardsError
from tfshards.schemas.files import system_fault

# Between two questions to a store, each of which costs money and time.
_REMOTE_SECONDS = 2.0


@contextmanager
def stopping(area: BuildArea, what: str) -> Iterator[None]:
    """Make every worker of the build stop if the block fails; ``what`` starts the reason of a fault."""
    try:
        yield
    except TfshardsError as error:
        area.stop(str(error))
        raise
    except OSError as error:
        area.stop(system_fault(area.out, error))
        raise
    except Exception as error:
        if not _is_shutting_down(error):
            # an error in a source or in tfshards: the other workers stop as well
            area.stop(f"{what}: {type(error).__name__}: {error}")
        raise


def _is_shutting_down(error: Exception) -> bool:
    """Return whether Python raised this because the process is ending.

    A worker that lost its engine ends while its threads still write; the others must not stop then.
    """
    # "cannot schedule new futures after interpreter shutdown", "can't create new thread at ..."
    return isinstance(error, RuntimeError) and str(error).endswith("shutdown")


class Running:
    """Checks that a build has not stopped: what a worker wrote afterwards would stay in a store."""

    def __init__(self, area: BuildArea) -> None:
        """Begin now."""
        self._area = area
        self._checked_at = time.monotonic()

    def check_often(self) -> None:
        """Check, but ask a store only now and then."""
        if not self._area.is_remote or time.monotonic() - self._checked_at >= _REMOTE_SECONDS:
            self.check()
            self._checked_at = time.monotonic()

    def check(self) -> None:
        """Raise BuildError if the build has stopped."""
        if self._area.stop_reason() is not None:
            raise BuildError("build-stopped")
