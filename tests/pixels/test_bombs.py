"""Small files with large pictures, or with headers of large sizes: memory stays bounded."""

import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.tables import mostly_nightly

from .corpus.files import KINDS, file_name
from .corpus.kind import chunk
from .corpus.pngs import header, png

# The largest is of 88.4 megapixels, just below the limit; the small files declare 81.
SIDES = [4_700, 9_400]


def whole_bomb(side: int) -> bytes:
    """Return a valid RGBA PNG of transparent black: at most 353 MB of pixels in some 350 kB."""
    squeeze = zlib.compressobj()
    row = bytes(1 + 4 * side)
    pixels = b"".join(squeeze.compress(row) for _ in range(side)) + squeeze.flush()
    return png(header(color=6, size=(side, side)), chunk(b"IDAT", pixels))


@pytest.mark.processes
@pytest.mark.parametrize("side", mostly_nightly(SIDES, kept=[4_700]))
def test_no_small_file_takes_more_memory_than_a_large_accepted_image(side, tmp_path):
    # four channels each: the picture, the white background, the composed image, and the encoded result
    max_bytes = 4 * (4 * side * side) + (200 << 20)
    bombs = [n for n, kind in KINDS.items() if kind.outcome == "too large" or "bomb" in n or ",000 in " in n]
    formats = {name.split(",")[0] for name in bombs}
    assert formats >= {"JPEG", "PNG", "WebP", "GIF", "TIFF", "BMP", "AVIF", "JPEG 2000", "PPM"}
    for name in bombs:
        (tmp_path / file_name(name)).write_bytes(KINDS[name].data)
    (tmp_path / "whole.png").write_bytes(whole_bomb(side))
    script = Path(__file__).parent / "corpus" / "bombs.py"
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    became = json.loads(ended.stdout)
    peak = became.pop("peak")
    wanted = {file_name(name): KINDS[name].outcome for name in bombs}
    assert became == {**wanted, "whole.png": "accepted"}
    assert peak < max_bytes, f"{peak >> 20} MiB; at most {max_bytes >> 20}"
