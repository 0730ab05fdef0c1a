"""A row has its own name, and runs in an empty folder."""

from collections import Counter

import pytest

pytest.register_assert_rewrite("tests.conformance.runner")


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Refuse rows of one name, which pytest would number, so that faults and reports could not name them."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = Counter(getattr(case, "id", None) for case in mark.args[1])
        twice = [name for name, count in names.items() if name is not None and count > 1]
        assert not twice, f"several rows of {metafunc.function.__name__} are called {', '.join(twice)}"
