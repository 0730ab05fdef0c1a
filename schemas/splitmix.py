"""SplitMix64 (Steele, Lea and Flood, doi:10.1145/2660193.2660195): its constants and finalizer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

STEP = 0x9E3779B97F4A7C15
# Each round of the finalizer is a shift and a factor; a last shift follows.
ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31


def mixed(states: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the states, each passed through the finalizer."""
    for shift, factor in ROUNDS:
        states = (states ^ (states >> np.uint64(shift))) * np.uint64(factor)
    found: npt.NDArray[np.uint64] = states ^ (states >> np.uint64(LAST_SHIFT))
    return found
