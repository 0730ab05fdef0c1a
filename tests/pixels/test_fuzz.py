"""Randomly damaged images: no crash, and no accepted file that TensorFlow decodes differently.

In ``make test`` the examples are the same each time, and few; ``make nightly`` draws others for minutes.
TensorFlow decodes many files at once in a separate process, which must not crash either.
"""

import random
import time
from typing import NamedTuple

import pytest

from tests.campaigns import SCALE, SEED
from tests.pixels.corpus.lies import damaged
from tests.pixels.corpus.shown import TensorFlow
from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.reasons import ImageError

from .corpus.files import KINDS
from .corpus.jpegs import OVERFLOW
from .corpus.kind import Kind
from .corpus.shown import difference, shown

pytestmark = pytest.mark.campaign

MINUTES = 3 * SCALE
# Number of examples of a run by default, and of each round of a long one.
NUM_EXAMPLES = 3_000 if MINUTES else 400
# Limit of pixels, so that a few broken headers with huge sizes do not take all the time.
OPTIONS = ImageOptions(max_pixels=1_000_000)

SEEDS = [
    (kind.suffix, kind.data)
    for kind in KINDS.values()
    if kind.outcome in ("kept", "converted", "animated") and 1 < len(kind.data) < 12_000
]


class Accepted(NamedTuple):
    """A damaged file that was accepted: its stored bytes, and the bytes whose picture they must show."""

    suffix: str
    data: bytes
    stored: bytes
    compared: bytes


@pytest.fixture(scope="module")
def tensorflow(programs, tmp_path_factory):
    return TensorFlow(tmp_path_factory.mktemp("fuzz"), programs)


def accepted_of(number: int) -> list[Accepted]:
    """Damage ``NUM_EXAMPLES`` files; return the accepted ones."""
    found: list[Accepted] = []
    details: list[str] = []
    draw = random.Random(number)
    for _ in range(NUM_EXAMPLES):
        suffix, data = damaged(SEEDS, draw)
        try:
            made = normalize(data, OPTIONS, suffix.lower().encode())
        except ImageError as error:
            details.append(error.detail)
            continue
        # except for its orientation, which test_corpus covers, a picture does not change
        turned = "orientation applied" in made.conversions
        found.append(Accepted(suffix, data, made.data, made.data if turned else data))
    assert all(map(str.isprintable, details))
    return found


def faults(found: list[Accepted], child: TensorFlow) -> list[str]:
    """Return the files that TensorFlow decodes differently from Pillow; they stay in the child's folder."""
    wrong = []
    pixels = child.decode([file.stored for file in found])
    for place, (file, decoded) in enumerate(zip(found, pixels, strict=True)):
        wanted = shown(Kind(file.suffix, file.compared, "kept"))
        # exactly, also for JPEG: the child uses the transform of Pillow
        fault = difference(decoded, wanted)
        if fault:
            path = child.folder / f"fault-{child.num_batches}-{place}{file.suffix}"
            path.write_bytes(file.data)
            wrong.append(f"{path} {fault}; {'kept' if file.stored is file.data else 'converted'}")
    return wrong


def test_accepted_damaged_files_look_the_same_in_tensorflow_and_pillow(tensorflow):
    found = accepted_of(1)
    assert not faults(found, tensorflow)
    # otherwise nothing was compared
    assert len(found) > NUM_EXAMPLES // 20


def test_overflowing_coefficients_decode_the_same_with_the_accurate_transform(tensorflow):
    data = KINDS[OVERFLOW].data
    assert not faults([Accepted(".jpg", data, data, data)], tensorflow)


@pytest.mark.skipif(not MINUTES, reason="make nightly")
def test_many_more_damaged_files_look_the_same_in_tensorflow_and_pillow(tensorflow):
    end, tried, accepted, wrong = time.monotonic() + 60 * MINUTES, 0, 0, []
    number = random.Random(SEED).randrange(1 << 32)
    while time.monotonic() < end:
        number += 1
        found = accepted_of(number)
        wrong += faults(found, tensorflow)
        tried, accepted = tried + NUM_EXAMPLES, accepted + len(found)
    print(f"\n{tried:,} files tried, {accepted:,} accepted, {len(wrong)} shown otherwise; last seed {number}")
    assert not wrong, "\n".join(wrong)
