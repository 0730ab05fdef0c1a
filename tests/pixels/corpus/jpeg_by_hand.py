"""JPEG files that Pillow cannot write: flat blocks with any subsampling, and lossless files.

Format: ITU-T T.81. Twelve categories of differences have codes of four bits each: a code is its category.
"""

import struct

from .modes import HEIGHT, WIDTH

Components = tuple[tuple[int, int, int], ...]
_USUAL: Components = ((1, 2, 2), (2, 1, 1), (3, 1, 1))


class _Bits:
    def __init__(self) -> None:
        self.text = ""

    def difference(self, value: int) -> None:
        size = abs(value).bit_length()
        self.text += f"{size:04b}"
        if size:
            self.text += f"{value if value > 0 else value + (1 << size) - 1:0{size}b}"

    def end_of_block(self) -> None:
        self.text += "0"

    def bytes(self) -> bytes:
        whole = self.text + "1" * (-len(self.text) % 8)
        return int(whole, 2).to_bytes(len(whole) // 8, "big").replace(b"\xff", b"\xff\0")


def _segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


_TABLES = _segment(0xC4, b"\0" + bytes([0, 0, 0, 12, *[0] * 12]) + bytes(range(12))) + _segment(
    0xC4, b"\x10" + bytes([1, *[0] * 15]) + b"\0"
)


def dc_jpeg(components=_USUAL, *, interleaved=True, num_scans=None, height_later=False) -> bytes:
    """Return a baseline JPEG of flat blocks; components are (number, horizontal, vertical sampling)."""
    widest, highest = max(h for _, h, _ in components), max(v for _, _, v in components)
    frame = struct.pack(">BHHB", 8, 0 if height_later else HEIGHT, WIDTH, len(components))
    frame += b"".join(bytes([number, h << 4 | v, 0]) for number, h, v in components)
    scans = [components] if interleaved else [(one,) for one in components]
    parts = []
    for scan in scans[:num_scans]:
        across, down = -(-WIDTH // (8 * widest)), -(-HEIGHT // (8 * highest))
        blocks = [(number, h * v) for number, h, v in scan]
        if not interleaved:
            # a scan of one component has only the blocks that hold pixels
            _, h, v = scan[0]
            across, down = -(-WIDTH * h // (8 * widest)), -(-HEIGHT * v // (8 * highest))
            blocks = [(scan[0][0], 1)]
        selected = b"".join(bytes([number, 0]) for number, _ in blocks)
        bits, place = _Bits(), 0
        for _ in range(across * down):
            for number, count in blocks:
                for _ in range(count):
                    place += 1
                    bits.difference((place * 7 + number) % 13 - 6)
                    bits.end_of_block()
        parts.append(_segment(0xDA, bytes([len(blocks)]) + selected + b"\0\x3f\0") + bits.bytes())
    if height_later:
        parts.insert(1, _segment(0xDC, struct.pack(">H", HEIGHT)))
    tables = _segment(0xDB, b"\0" + b"\x10" * 64) + _TABLES
    return b"\xff\xd8" + tables + _segment(0xC0, frame) + b"".join(parts) + b"\xff\xd9"


def lossless_jpeg() -> bytes:
    """Return a gray lossless JPEG in which each pixel is predicted by the one to its left."""
    frame = struct.pack(">BHHB", 8, HEIGHT, WIDTH, 1) + b"\x01\x11\0"
    bits, above = _Bits(), 128
    for row in range(HEIGHT):
        before = above
        for column in range(WIDTH):
            value = (row * 9 + column * 5) % 256
            bits.difference(value - before)
            before = value
            above = value if column == 0 else above
    scan = _segment(0xDA, b"\x01\x01\0\x01\0\0")
    return b"\xff\xd8" + _TABLES + _segment(0xC3, frame) + scan + bits.bytes() + b"\xff\xd9"
