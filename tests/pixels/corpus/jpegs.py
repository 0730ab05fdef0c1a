"""JPEG files, some of which Pillow cannot write: flat blocks with any subsampling, and lossless files.

Format: ITU-T T.81. Twelve categories of differences have codes of four bits each: a code is its category.
"""

import re
import struct

from tests.pixels.corpus.kind import (
    CMYK,
    GRAY,
    HEIGHT,
    OTHER,
    RGB,
    WIDTH,
    Kind,
    converted,
    encoded,
    exif,
    kept,
    rejected,
)

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


# JPEG: files of cameras and editors, and truncated downloads


PLAIN = encoded(RGB, "JPEG", quality=95)


PROGRESSIVE = encoded(RGB, "JPEG", quality=95, progressive=True)


RESTARTS = encoded(RGB, "JPEG", quality=95, restart_marker_blocks=1)


_CMYK = encoded(CMYK, "JPEG", quality=95)


_MPO = encoded(RGB, "MPO", save_all=True, append_images=[OTHER], quality=95)


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def with_segments(*segments: bytes, data: bytes = PLAIN) -> bytes:
    """Insert segments after the first marker."""
    return data[:2] + b"".join(segments) + data[2:]


def declared(width: int, height: int, data: bytes = PLAIN) -> bytes:
    """Return the same bytes with another size in the header."""
    return data.replace(struct.pack(">HH", HEIGHT, WIDTH), struct.pack(">HH", height, width), 1)


def place(marker: int, data: bytes = PLAIN) -> int:
    return data.index(bytes([0xFF, marker]))


def _exif_short(value: int, kind: int = 3, count: int = 1) -> bytes:
    """Return EXIF with an orientation of any type, big-endian."""
    entry = struct.pack(">HHIHH", 0x0112, kind, count, value, 0)
    return segment(0xE1, b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + entry + b"\0\0\0\0")


def _xmp(orientation: int) -> bytes:
    text = (
        f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="{orientation}"/></x:xmpmeta>'
    )
    return segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + text.encode())


def _many_scans(number: int) -> bytes:
    """Return a progressive JPEG whose last scan is repeated ``number`` times."""
    last = PROGRESSIVE.rindex(b"\xff\xda")
    return PROGRESSIVE[:last] + PROGRESSIVE[last:-2] * number + b"\xff\xd9"


def _less_precise() -> bytes:
    """Return a progressive JPEG whose last scan announces further refinement of the lowest bits."""
    start = PROGRESSIVE.index(b"\xff\xda\0\x08\x01\x01\0\x01\x3f\x21")
    end = PROGRESSIVE.index(b"\xff\xc4", start)
    return PROGRESSIVE[:-2] + PROGRESSIVE[start:end] + b"\xff\xd9"


def _cut_at(data: bytes) -> dict[str, bytes]:
    """Return the file truncated inside each of its segments."""
    starts = [match.start() for match in re.finditer(rb"\xff[\xc0\xc4\xda\xdb\xe0]", data)]
    return {f"cut in segment {n}, {data[start + 1]:02x}": data[: start + 5] for n, start in enumerate(starts)}


# For these, the two transforms of libjpeg give different pixels; the default of TensorFlow is the fast one.
OVERFLOW = "JPEG, coefficients that overflow"


_ADOBE = b"Adobe\0\x64\0\0\0\0"


_PREVIEW = encoded(OTHER, "JPEG")


_SCAN_START = place(0xDA) + 14


KINDS: dict[str, Kind] = {
    "JPEG, baseline": kept(".jpg", PLAIN),
    "JPEG, progressive": kept(".jpeg", PROGRESSIVE),
    "JPEG, optimised tables": kept(".JPG", encoded(RGB, "JPEG", optimize=True)),
    "JPEG, 4:4:4": kept(".jpe", encoded(RGB, "JPEG", subsampling=0)),
    "JPEG, 4:2:2": kept(".jfif", encoded(RGB, "JPEG", subsampling=1)),
    "JPEG, 4:1:1": kept(".jpg", dc_jpeg(((1, 4, 1), (2, 1, 1), (3, 1, 1)))),
    "JPEG, 4:4:0": kept(".jpg", dc_jpeg(((1, 1, 2), (2, 1, 1), (3, 1, 1)))),
    "JPEG, color finer than light": kept(".jpg", dc_jpeg(((1, 1, 1), (2, 2, 2), (3, 1, 1)))),
    "JPEG, a scan for each component": kept(".jpg", dc_jpeg(interleaved=False)),
    "JPEG, a scan for each component, one missing": converted(
        ".jpg", dc_jpeg(interleaved=False, num_scans=2)
    ),
    "JPEG, two components": rejected(".jpg", dc_jpeg(((1, 1, 1), (2, 1, 1))), "unreadable"),
    "JPEG, extended sequential": kept(".jpg", PLAIN.replace(b"\xff\xc0", b"\xff\xc1", 1)),
    "JPEG, lossless": converted(".jpg", lossless_jpeg()),
    "JPEG, arithmetic by its header": converted(".jpg", PLAIN.replace(b"\xff\xc0", b"\xff\xc9", 1)),
    "JPEG, 12 bits by its header": rejected(
        ".jpg", PLAIN.replace(b"\xff\xc0\0\x11\x08", b"\xff\xc1\0\x11\x0c", 1), "unsupported"
    ),
    "JPEG, restarts": kept(".jpg", RESTARTS),
    "JPEG, restarts out of order": kept(".jpg", RESTARTS.replace(b"\xff\xd2", b"\xff\xd5", 1)),
    "JPEG, grey": kept(".jpg", encoded(GRAY, "JPEG")),
    "JPEG, CMYK": converted(".jpg", _CMYK, "CMYK to RGB"),
    "JPEG, CMYK without Adobe's mark": converted(".jpg", _CMYK.replace(b"Adobe", b"Abode", 1), "CMYK to RGB"),
    "JPEG, YCCK": converted(".jpg", _CMYK.replace(_ADOBE + b"\0", _ADOBE + b"\x02", 1), "CMYK to RGB"),
    "JPEG, RGB by Adobe's mark": kept(".jpg", encoded(RGB, "JPEG", keep_rgb=True)),
    "JPEG, application data of every number": kept(
        ".jpg", with_segments(*(segment(0xE0 + number, bytes([number]) * 99) for number in range(1, 14)))
    ),
    "JPEG, Adobe's mark cut": rejected(".jpg", with_segments(segment(0xEE, b"Adobe")), "unreadable"),
    "JPEG, comments": kept(".jpg", with_segments(segment(0xFE, b"hello"), segment(0xFE, b""))),
    "JPEG, fill bytes": kept(".jpg", with_segments(b"\xff" * 9)),
    "JPEG, reserved marker": rejected(".jpg", with_segments(segment(0x02, b"junk")), "unreadable"),
    "JPEG, bytes behind its end": kept(".jpg", PLAIN + b"junk" * 500),
    "JPEG, another behind its end": kept(".jpg", PLAIN + _PREVIEW),
    "JPEG, two ends": kept(".jpg", PLAIN + b"\xff\xd9"),
    "JPEG, two starts": rejected(".jpg", PLAIN[:2] + PLAIN, "damaged"),
    "JPEG, junk before its start": rejected(".jpg", b"junk" + PLAIN, "unreadable"),
    "JPEG, a newline before its start": rejected(".jpg", b"\n" + PLAIN, "unreadable"),
    "JPEG, no end marker": rejected(".jpg", PLAIN[:-2], "damaged"),
    "JPEG, zeros at its end": rejected(".jpg", PLAIN[:-60] + bytes(60), "damaged"),
    "JPEG, half of it": rejected(".jpg", PLAIN[: _SCAN_START + 100], "damaged"),
    # libjpeg fills missing data with gray without an error
    "JPEG, half of it, with an end": kept(".jpg", PLAIN[: _SCAN_START + 100] + b"\xff\xd9"),
    "JPEG, no pixels": kept(".jpg", PLAIN[:_SCAN_START] + b"\xff\xd9"),
    "JPEG, progressive, its first scan alone": converted(
        ".jpg", PROGRESSIVE[: PROGRESSIVE.index(b"\xff\xc4", PROGRESSIVE.index(b"\xff\xda"))] + b"\xff\xd9"
    ),
    "JPEG, a hole in its pixels": kept(".jpg", PLAIN[: _SCAN_START + 50] + PLAIN[_SCAN_START + 90 :]),
    "JPEG, no tables of quantisation": rejected(".jpg", PLAIN.replace(b"\xff\xdb", b"\xff\xfe"), "damaged"),
    OVERFLOW: kept(".jpg", PLAIN[: place(0xDB) + 6] + b"\xff" * 5 + PLAIN[place(0xDB) + 11 :]),
    "JPEG, no Huffman tables": kept(".jpg", PLAIN.replace(b"\xff\xc4", b"\xff\xfe")),
    "JPEG, previews behind it (MPO)": kept(".mpo", _MPO),
    "JPEG, previews that are cut (MPO)": kept(".jpg", _MPO[:-300]),
    "JPEG, a preview in its EXIF": kept(
        ".jpg",
        with_segments(
            segment(
                0xE1,
                b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\x0e\0\x02"
                + struct.pack(">HHIIHHII", 0x0201, 4, 1, 44, 0x0202, 4, 1, len(_PREVIEW))
                + bytes(4)
                + _PREVIEW,
            )
        ),
    ),
    "JPEG, huge EXIF": kept(
        ".jpg", with_segments(segment(0xE1, b"Exif\0\0MM\0*\0\0\0\x08\0\0" + bytes(65_500)))
    ),
    "JPEG, EXIF whose entries are without number": kept(
        ".jpg", with_segments(segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0\xff\xff"))
    ),
    "JPEG, EXIF that is none": kept(".jpg", with_segments(segment(0xE1, b"Exif\0\0junkjunkjunk"))),
    "JPEG, EXIF that points to itself": kept(
        ".jpg",
        with_segments(
            segment(
                0xE1, b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + struct.pack(">HHII", 0x8769, 4, 1, 8) + b"\0\0\0\x08"
            )
        ),
    ),
    **{
        f"JPEG, orientation {number}": (
            converted(".jpg", encoded(RGB, "JPEG", quality=95, exif=exif(number)), orientation=number)
            if 2 <= number <= 8
            else kept(".jpg", encoded(RGB, "JPEG", quality=95, exif=exif(number)))
        )
        for number in (*range(10), 255)
    },
    "JPEG, orientation as a text": kept(".jpg", with_segments(_exif_short(0x3600, kind=2, count=2))),
    "JPEG, orientation of two numbers": converted(
        ".jpg",
        with_segments(
            segment(
                0xE1, b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + struct.pack(">HHIHH", 0x0112, 3, 2, 6, 6) + bytes(4)
            )
        ),
        orientation=6,
    ),
    "JPEG, orientation in XMP": converted(".jpg", with_segments(_xmp(6)), orientation=6),
    "JPEG, orientation in EXIF and another in XMP": converted(
        ".jpg", with_segments(_exif_short(8), _xmp(6)), orientation=8
    ),
    "JPEG, progressive, turned": converted(
        ".jpg", encoded(RGB, "JPEG", progressive=True, exif=exif(5)), orientation=5
    ),
    "JPEG, grey, turned": converted(".jpg", encoded(GRAY, "JPEG", exif=exif(7)), orientation=7),
    "JPEG, CMYK, turned": converted(
        ".jpg", encoded(CMYK, "JPEG", exif=exif(3)), "CMYK to RGB", orientation=3
    ),
    "JPEG, color profile": kept(
        ".jpg", encoded(RGB, "JPEG", icc_profile=b"profile" * 20_000), "color profile ignored"
    ),
    "JPEG, color profile without its second part": kept(
        ".jpg", with_segments(segment(0xE2, b"ICC_PROFILE\0\x01\x02" + b"junk" * 99))
    ),
    "JPEG, 1 x 1": kept(".jpg", encoded(RGB.crop((9, 9, 10, 10)), "JPEG", quality=95)),
    "JPEG, 65500 x 1": kept(".jpg", encoded(RGB.resize((65_500, 1)), "JPEG")),
    "JPEG, 65535 x 1 by its header": rejected(
        ".jpg",
        encoded(RGB.resize((65_500, 1)), "JPEG").replace(b"\0\x01\xff\xdc", b"\0\x01\xff\xff", 1),
        "damaged",
    ),
    "JPEG, 1 x 65500": kept(".jpg", encoded(RGB.resize((1, 65_500)), "JPEG")),
    "JPEG, 12,000 x 12,000 in a kilobyte": rejected(".jpg", declared(12_000, 12_000), "too large"),
    "JPEG, 60,000 x 60,000 in a kilobyte": rejected(".jpg", declared(60_000, 60_000), "too large"),
    "JPEG, 9,000 x 9,000 in a kilobyte": rejected(".jpg", declared(9_000, 9_000), "damaged"),
    "JPEG, higher than its pixels": kept(".jpg", declared(WIDTH, 2 * HEIGHT)),
    "JPEG, lower than its pixels": kept(".jpg", declared(WIDTH, 8)),
    "JPEG, height that comes later (DNL)": rejected(".jpg", dc_jpeg(height_later=True), "unreadable"),
    "JPEG, 101 scans": rejected(".jpg", _many_scans(101), "too large"),
    "JPEG, 30 scans more": kept(".jpg", _many_scans(30)),
    # libjpeg smooths incomplete blocks, and different releases do it differently
    "JPEG, a last scan that leaves out bits": converted(".jpg", _less_precise()),
    **{f"JPEG, {name}": rejected(".jpg", data, "damaged") for name, data in _cut_at(PLAIN).items()},
}
