"""The table of conversions of images that lose what their files hold, with the options that keep it."""

from __future__ import annotations

import re
from typing import NamedTuple


class Loss(NamedTuple):
    """A conversion that loses something.

    Attributes:
        conversion: its name, as manifests count it.
        remedy: how to keep what is lost, with the names of parameters.
        done: what was done to the images, if a build warns about it; None if it was asked for or is harmless.
    """

    conversion: str
    remedy: str
    done: str | None = None


LOSSES = (
    Loss(
        "16 bits to 8",
        "depth=16 keeps their values",
        "with more than 8 bits per sample: reduced to the upper 8, so that 4095 of 16 bits becomes 15",
    ),
    Loss(
        "32 bits to 8",
        "depth=16 keeps values up to 65535",
        "with 32 bits per sample: reduced to 8, by dividing values up to 65535 by 256",
    ),
    Loss(
        "float to 8 bits",
        "'tfshards build arrays' stores arrays of them as they are",
        "of floating point numbers: reduced to 8 bits",
    ),
    Loss(
        "alpha over white",
        "alpha='keep' and channels=4 store it, alpha='drop' leaves the colors as they are",
        "with transparency: drawn over white",
    ),
    Loss("alpha dropped", "alpha='keep' and channels=4 store it"),
    Loss("first frame", "no option stores the others: extract them before the build"),
    Loss(
        "color profile ignored",
        "no option applies it: convert images that are not sRGB before the build",
    ),
)


def remedies() -> dict[str, str]:
    """Return the remedy of each lossy conversion, with the flags of the command line."""
    return {loss.conversion: _PARAMETER.sub(r"--\1 \3", loss.remedy) for loss in LOSSES}


_PARAMETER = re.compile(r"\b([a-z]+)=('?)(\w+)\2")
