"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

# Every tf.data function that is made is looked over for oneDNN, for half of the time that a small dataset
# takes to its first batch; this is for the processes that tests start, too.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import pytest

from tests.programs import Programs


@pytest.fixture(autouse=True, scope="module")
def _few_collections() -> None:
    """Keep the collector from looking at all that TensorFlow has imported, whenever graphs are made."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def programs() -> Iterator[Programs]:
    """Start programs that use TensorFlow, in processes that need not import it."""
    programs = Programs(["tensorflow", "tf_keras", "tfshards.loader", "tfshards.prep"])
    yield programs
    programs.close()


@pytest.fixture(autouse=True, scope="session")
def interrupts() -> Iterator[None]:
    """Let Ctrl-C interrupt this process and its children, though a shell's background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
