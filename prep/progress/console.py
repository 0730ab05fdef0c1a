"""Where a command reports: a handler of ``logging`` that prints to standard error, also below a bar."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tfshards.prep.progress.lines import LOGGER
from tfshards.schemas.errors import one_line


class _Handler(logging.Handler):
    """Prints records; an unusable standard error must not end a build."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record: of tfshards its text, of a library also where it comes from."""
        lines = [one_line(line) for line in record.getMessage().splitlines()]
        if record.name != LOGGER.name:
            if record.levelno < logging.getLogger().level:
                # of the loader, whose logger has the level of its parent
                return
            # Beam logs an error several times with the traces of all workers
            last = None if LOGGER.isEnabledFor(logging.DEBUG) else 1
            lines = [f"{record.name}: {record.levelname}: {line}" for line in lines[:last]]
        elif record.levelno == logging.WARNING:
            lines[:1] = [f"warning: {line}" for line in lines[:1]]
        bars = sys.modules.get("tqdm.std")
        # a closed file raises ValueError
        with suppress(OSError, ValueError):
            if bars is not None and sys.stderr is not None:
                bars.tqdm.write("\n".join(lines), file=sys.stderr)
            elif sys.stderr is not None:
                print(*lines, sep="\n", file=sys.stderr)


_HANDLER = _Handler()


@contextmanager
def reporting(*, quiet: bool = False, verbose: bool = False) -> Iterator[None]:
    """Print status lines and warnings to standard error, and errors of libraries.

    Args:
        quiet: print neither status lines nor progress.
        verbose: also print details, such as tracebacks, and what libraries log.
    """
    root = logging.getLogger()
    before = root.handlers, root.level, LOGGER.level
    # a library may have installed others while it was imported
    root.handlers = [_HANDLER]
    root.setLevel(logging.INFO if verbose else logging.ERROR)
    LOGGER.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
    try:
        yield
    finally:
        root.handlers = before[0]
        root.setLevel(before[1])
        LOGGER.setLevel(before[2])
