"""Keep Beam's log from the terminal, while a pipeline runs and after it has lost a worker."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tfshards.prep.progress.console import console


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Suppress Beam's log, since the raised error has all that a user needs, unless details are shown."""
    if console().has_details:
        yield
        return
    root = logging.getLogger()
    loggers = [logging.getLogger("apache_beam"), root]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        # Beam logs the end of a worker process as critical
        logger.setLevel(logging.CRITICAL + 1)
    # Without a handler, Beam's options would install one that prints for the rest of the program.
    silent = logging.NullHandler()
    root.addHandler(silent)
    try:
        yield
    finally:
        root.removeHandler(silent)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def ignore_beam() -> None:
    """Suppress Beam's log for the rest of the program: threads that it left behind are about to fail."""
    beam_logger = logging.getLogger("apache_beam")
    beam_logger.addHandler(logging.NullHandler())
    beam_logger.propagate = False
    # what worker processes log is printed by the root logger
    logging.getLogger().addFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    return "apache_beam" not in record.pathname
