"""What Beam prints: kept from the terminal, and the reason of a failure found in it."""

from __future__ import annotations

import logging
import re
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from tfshards.prep.progress.console import console
from tfshards.schemas import BuildError


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Suppress Beam's log, since the raised error has all that a user needs, unless details are shown."""
    if console().is_verbose:
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


@contextmanager
def quiet_threads() -> Iterator[None]:
    """Print no exceptions of Beam's threads, which fail the pipeline; after a failure, others may follow."""
    hook = threading.excepthook

    def print_others(death: threading.ExceptHookArgs) -> None:
        frames = traceback.walk_tb(death.exc_traceback)
        if not any(frame.f_globals.get("__name__", "").startswith("apache_beam.") for frame, _ in frames):
            hook(death)

    threading.excepthook = print_others
    yield
    threading.excepthook = hook


def ignore_beam() -> None:
    """Suppress Beam's log for the rest of the program: threads that it left behind are about to fail."""
    beam_logger = logging.getLogger("apache_beam")
    beam_logger.addHandler(logging.NullHandler())
    beam_logger.propagate = False
    # what worker processes log is printed by the root logger
    logging.getLogger().addFilter(lambda record: "apache_beam" not in record.pathname)


# Runners pass a worker's traceback on as text, some of them quoted as JSON or Java do.
_RAISED = re.compile(r"(?:BuildError|InputError|OptionsError): (.+?)(?= \[while running|\\n|\n|$)")
_LACKS = re.compile(r"ModuleNotFoundError: (?:No module named '([\w.]+)'|images need (\S+):)")
# The functions of the pipeline belong to modules, so that another version of the package may lack them.
_DIFFERS = re.compile(
    r"(?:AttributeError: Can't get attribute|ImportError: cannot import name) .+?(?=\\n|\n|$)"
)

# of an error of gRPC, which the local runner does not use
_DETAILS = re.compile(r'\bdetails = "(.+)"')


def reason(failure: BaseException) -> str:
    """Return in one line why a pipeline failed, and the remedy if it is a worker's environment."""
    if isinstance(failure, BuildError):
        return str(failure)
    text = str(failure).strip()
    if raised := _RAISED.findall(text):
        return str(raised[-1]).strip()
    if lacks := _LACKS.search(text):
        name = lacks[1] or lacks[2]
        return f"a worker cannot import {name}; install tfshards[prep] in the Python of every worker"
    if differs := _DIFFERS.search(text):
        return f"a worker has another version of tfshards or Apache Beam than the command: {differs[0]}"
    if details := _DETAILS.search(text):
        return f"the job service cannot be reached any more: {details[1]}"
    last_line = text.splitlines()[-1:] or [type(failure).__name__]
    return f"Apache Beam ended the pipeline: {last_line[0]}"
