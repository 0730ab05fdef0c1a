"""Run a command of tfshards as a program: ``program.py LIMITS ARGUMENT ...``, where LIMITS is a JSON object.

It is the leader of a process group. With ``file_size`` no file may grow larger, with ``obeys`` the command
obeys permissions even as root.
"""

import json
import os
import resource
import sys

from tests.permissions import obey_permissions
from tfshards.prep.cli import main as cli


def main() -> None:
    """Run the command, with which this process ends."""
    os.setsid()
    limits = json.loads(sys.argv.pop(1))
    if "file_size" in limits:
        # the limit of a user, who may not raise it again
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits["file_size"],) * 2)
    if limits.get("obeys"):
        obey_permissions()
    cli.entry()
