"""A cluster of real processes on loopback, for the tests of strategies that span hosts."""

import json
import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path


def run_cluster(programs, folder, program, arguments, tasks, until, timeout):
    """Run ``program`` as each of the tasks; return ``[(stdout, stderr)]`` of those of kind ``until``.

    Args:
        programs: starts the processes.
        folder: folder for their output.
        program: name of a file in the folder of this test, or a path.
        arguments: arguments of the program.
        tasks: the number of processes by kind of task, as in ``TF_CONFIG``.
        until: the kind of task that ends by itself; the others are ended then.
        timeout: seconds until a process that has not ended is an error.
    """
    cluster = dict(zip(tasks, _addresses(tasks.values()), strict=True))
    started = []
    with ExitStack() as stack:
        for kind, index in [(each, index) for each, count in tasks.items() for index in range(count)]:
            config = {"cluster": cluster, "task": {"type": kind, "index": index}}
            files = [folder / f"{kind}-{index}.{stream}" for stream in ("out", "err")]
            process = programs.start(
                [Path(__file__).parent / program, *arguments],
                stdout=stack.enter_context(files[0].open("w")),
                stderr=stack.enter_context(files[1].open("w")),
                env=os.environ | {"TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": ""},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append((kind, process, files))
        wanted = [(process, files) for kind, process, files in started if kind == until]
        _wait([process for process, _ in wanted], timeout)
    read = [tuple(file.read_text() for file in files) for _, files in wanted]
    for (process, _), (_, stderr) in zip(wanted, read, strict=True):
        assert process.returncode == 0, f"status {process.returncode} after up to {timeout} s\n{stderr}"
    return read


def _wait(processes, timeout):
    """Wait until all have ended, one has failed, or the time is up."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        states = [process.poll() for process in processes]
        if None not in states or any(states):
            return
        time.sleep(0.05)


def _addresses(counts):
    """Return lists of the given numbers of unused addresses on loopback."""
    with ExitStack() as stack:
        lists = []
        for count in counts:
            sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
            for each in sockets:
                each.bind(("127.0.0.1", 0))
            lists.append([f"127.0.0.1:{each.getsockname()[1]}" for each in sockets])
        return lists
