"""Runs commands of tfshards in child processes that can be killed, without importing their modules for each.

Its own arguments are more modules to import, such as that of Beam, which takes over a second.

It reads one JSON object per line from standard input: ``arguments`` of the command, ``log`` for its output,
and optionally ``die_at``, the number of the step at which it kills its process group, or ``steps``, a file to
which each step adds a line. A step is the moment before or after a call that changes a name in a folder. With
``file_size`` no file may grow larger, with ``obeys`` the command obeys permissions even as root. The answers
are the process id of the child and, when it has ended, its return code.
"""

import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import count

from PIL import Image

from tests.permissions import obey_permissions
from tfshards.prep.cli import main as cli

# What the commands import when they need it is imported before the fork.
MODULES = (
    "numpy.ma",
    "tfshards.prep.building.build",
    "tfshards.prep.deriving.append",
    "tfshards.prep.deriving.relabel",
    "tfshards.prep.deriving.remove",
    "tfshards.prep.engines.local",
    "tfshards.prep.sources.table",
)

CHANGES = ("replace", "link", "unlink", "mkdir", "rmdir")


def run(request: Mapping[str, object]) -> None:
    """Run the command in this process, which ends with it."""
    os.setsid()
    output = os.open(str(request["log"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if "file_size" in request:
        # the limit of a user, who may not raise it again
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(str(request["file_size"])),) * 2)
    if request.get("obeys"):
        obey_permissions()
    if "die_at" in request or "steps" in request:
        step = stepper(request)
        for name in CHANGES:
            setattr(os, name, watched(getattr(os, name), step))
    sys.argv = ["tfshards", *request["arguments"]]
    cli.entry()


def stepper(request: Mapping[str, object]) -> Callable[[str], None]:
    """Return the function called at each step; it does not return from the step ``die_at``."""
    numbers = count()
    steps = os.open(str(request["steps"]), os.O_WRONLY | os.O_CREAT) if "steps" in request else None

    def step(what: str) -> None:
        if steps is not None:
            os.write(steps, f"{what}\n".encode())
        if next(numbers) == request.get("die_at"):
            os.killpg(0, signal.SIGKILL)

    return step


def watched(change: Callable[..., None], step: Callable[[str], None]) -> Callable[..., None]:
    """Return ``change`` with a step before it and a step after it."""
    name = change.__name__

    def call(*arguments: object, **options: object) -> None:
        path = arguments[1] if name in ("replace", "link") else arguments[0]
        step(f"before {name} {os.path.basename(os.fspath(path))}")
        change(*arguments, **options)
        step(f"after {name} {os.path.basename(os.fspath(path))}")

    return call


def serve() -> None:
    """Run the requested commands one at a time."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(json.loads(line))
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    for module in (*MODULES, *sys.argv[1:]):
        import_module(module)
    Image.init()
    gc.freeze()
    serve()
