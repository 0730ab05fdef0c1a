"""Divides tables of cases: ``make test`` runs a few, ``make nightly`` the others."""

from collections.abc import Collection, Iterable

import pytest


def mostly_nightly(cases: Iterable[object], kept: Collection[object]) -> list[object]:
    """Return all cases for ``parametrize``, with the marker ``nightly`` on those that are not in ``kept``.

    A case is a tuple of arguments, or one argument.
    """
    cases = list(cases)
    assert all(case in cases for case in kept), "a case to keep is not in the table"
    return [
        c if c in kept else pytest.param(*(c if isinstance(c, tuple) else (c,)), marks=pytest.mark.nightly)
        for c in cases
    ]
