"""How much the campaigns try: few cases in ``make test``, many in ``make nightly``, whose seed is drawn.

``SCALE=10`` tries ten times as many as ``make nightly``, and ``SEED=WORD`` repeats a run.
"""

import os

SCALE = float(os.environ.get("SCALE") or 0)
SEED = os.environ.get("SEED") or "4"


def cases(few: int, nightly: int) -> int:
    """Return how many cases to try: ``few`` in ``make test``, else ``nightly`` times the scale."""
    return max(1, round(nightly * SCALE)) if SCALE else few
