"""A server that this machine cannot fetch skips its tests, and says why."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from .conftest import RunningServers


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ("fake-gcs", "fake-gcs could not be fetched: go is not installed"),
        ("s3proxy", "java is not installed, and s3proxy needs it"),
        ("azurite", "node is not installed, and azurite needs it"),
    ],
)
def test_tests_are_skipped_with_a_reason(tmp_path, monkeypatch, server, reason):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TFSHARDS_ENGINES", str(tmp_path / "cache"))
    with ExitStack() as stack, pytest.raises(pytest.skip.Exception, match=reason):
        RunningServers(tmp_path / "logs", stack).get(server)
