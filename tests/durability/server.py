"""Runs commands of tfshards in child processes that can be killed, without importing their modules for each.

Its own arguments are more modules to import, such as that of Beam, which takes over a second.

It reads one JSON object per line from standard input: ``arguments`` of the command, ``log`` for its output.
With ``file_size`` no file may grow larger, with ``obeys`` the command obeys permissions even as root. The
answers are the process id of the child and, when it has ended, its return code.
"""

import gc
import json
import os
import resource
import sys
from collections.abc import Mapping
from importlib import import_module

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
    sys.argv = ["tfshards", *request["arguments"]]
    cli.entry()


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
