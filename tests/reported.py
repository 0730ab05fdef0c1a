"""Collect what tfshards reports: the status lines and warnings of its logger."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Params = ParamSpec("Params")
Value = TypeVar("Value")


class _Handler(logging.Handler):
    def __init__(self, log: Callable[[str], object]) -> None:
        super().__init__(logging.INFO)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        warning = "warning: " if record.levelno == logging.WARNING else ""
        self.log(f"{warning}{record.getMessage()}")


def logged(function: Callable[Params, Value], log: Callable[[str], object]) -> Callable[Params, Value]:
    """Return a function whose lines go to ``log``, as the command prints them."""

    @wraps(function)
    def call(*args: Params.args, **options: Params.kwargs) -> Value:
        logger, handler = logging.getLogger("tfshards"), _Handler(log)
        level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        try:
            return function(*args, **options)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)

    return call
