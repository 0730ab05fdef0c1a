"""A row runs in an empty folder."""

import pytest

pytest.register_assert_rewrite("tests.conformance.runner")


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
