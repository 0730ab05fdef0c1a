"""Which files are images: by suffix, so that listing a folder reads no more than it must, or by content."""

from __future__ import annotations

# Formats by Pillow's names, and only those whose decoders run no program: neither PostScript nor Windows'
# metafiles, and no containers of scientific data that need a plugin.
SUFFIXES = {
    b".jpg": "JPEG",
    b".jpeg": "JPEG",
    b".jpe": "JPEG",
    b".jfif": "JPEG",
    b".mpo": "JPEG",
    b".png": "PNG",
    b".apng": "PNG",
    b".webp": "WEBP",
    b".gif": "GIF",
    b".bmp": "BMP",
    b".dib": "DIB",
    b".tif": "TIFF",
    b".tiff": "TIFF",
    b".avif": "AVIF",
    b".heic": "HEIF",
    b".heif": "HEIF",
    b".pbm": "PPM",
    b".pgm": "PPM",
    b".ppm": "PPM",
    b".pnm": "PPM",
    b".pfm": "PPM",
    b".tga": "TGA",
    b".ico": "ICO",
    b".jp2": "JPEG2000",
    b".j2k": "JPEG2000",
    b".jpx": "JPEG2000",
    b".pcx": "PCX",
    b".qoi": "QOI",
    b".sgi": "SGI",
}

# These begin with nothing, or with a byte or two, that tells them from a text: the suffix has to.
BY_SUFFIX_ALONE = frozenset({"DIB", "PCX", "TGA"})

HEAD_BYTES = 32
# Tables that Hugging Face's datasets have beside the images that they are about.
METADATA_NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
_AVIF_BRANDS = (b"avif", b"avis")
_STARTS = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
    (b"qoif", "QOI"),
)
_TIFF_STARTS = (b"II*\x00", b"MM\x00*")


def format_of(head: bytes) -> str | None:
    """Return the format that the first ``HEAD_BYTES`` of a file tell beyond doubt, else None.

    Not told: what has no mark of its own (TGA), or one of a byte or two that any file may have (BMP, ICO,
    PCX, SGI, PPM). TIFF is not told either, since camera makers' raw files begin like it and hold a preview.
    """
    for start, name in _STARTS:
        if head.startswith(start):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp":
        return "HEIF" if head[8:12] in _HEIC_BRANDS else "AVIF" if head[8:12] in _AVIF_BRANDS else None
    return None


def is_tiff(head: bytes) -> bool:
    """Whether the first bytes are those of a TIFF file, or of what a camera's maker made of it."""
    return head.startswith(_TIFF_STARTS)
