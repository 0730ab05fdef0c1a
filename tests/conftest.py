"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

# TensorFlow checks every tf.data function for oneDNN, which takes half of the time before the first batch of
# a small dataset. The variable also applies to the processes that tests start.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import pytest
from hypothesis import HealthCheck, settings

from tests.programs import Programs

if TYPE_CHECKING:
    from tests.storage.conftest import RunningServers

# The number of examples is bounded, not their time, so that a busy machine fails no test.
settings.register_profile(
    "tfshards",
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tfshards")


@pytest.fixture(autouse=True, scope="module")
def _few_collections() -> None:
    """Exclude the objects that TensorFlow has imported from garbage collection while graphs are made."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def programs() -> Iterator[Programs]:
    """Start programs that use TensorFlow, in processes that need not import it."""
    programs = Programs(["tensorflow", "tf_keras", "tfshards.loader", "tfshards.prep"])
    yield programs
    programs.close()


@pytest.fixture(scope="session")
def running_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServers]:
    """Run the object stores that tests ask for until the end of the session."""
    from tests.storage.conftest import RunningServers

    with ExitStack() as stack:
        yield RunningServers(tmp_path_factory.mktemp("servers"), stack)


@pytest.fixture(autouse=True, scope="session")
def interrupts() -> Iterator[None]:
    """Let Ctrl-C interrupt this process and its children, though a shell's background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
