"""TIFF files with 16 bits per sample, which Pillow does not write, and such samples in PNG files."""

import struct
import zlib

import numpy as np
import tensorflow as tf


def noise(*shape: int) -> np.ndarray:
    """Return samples of 16 bits in which the lower byte matters as much as the upper one."""
    return np.random.default_rng(len(shape)).integers(0, 65536, shape, dtype=np.uint16)


def png(samples: np.ndarray) -> bytes:
    """Return a PNG of shape (height, width, channels), as TensorFlow writes it."""
    return tf.io.encode_png(samples).numpy()


def pixels(encoded: bytes, dtype: str = "uint16") -> np.ndarray:
    """Return the samples of a PNG, as TensorFlow decodes it."""
    return tf.io.decode_png(encoded, dtype=dtype).numpy()


def tiff(samples, order="<", *, is_deflated=False, is_planar=False, orientation=1, alpha=2) -> bytes:
    """Return a TIFF of shape (height, width, channels) in three strips."""
    height, width, channels = samples.shape
    rows = -(-height // 3)
    parts = np.split(samples, channels, axis=2) if is_planar else [samples]
    strips = [p[r : r + rows].astype(f"{order}u2").tobytes() for p in parts for r in range(0, height, rows)]
    strips = [zlib.compress(strip) for strip in strips] if is_deflated else strips
    offsets = np.cumsum([8, *map(len, strips)]).tolist()
    end = offsets[-1] + offsets[-1] % 2
    entries = {
        256: [width],
        257: [height],
        258: [16] * channels,
        259: [8 if is_deflated else 1],
        262: [2 if channels > 2 else 1],
        273: offsets[:-1],
        274: [orientation],
        277: [channels],
        278: [rows],
        279: list(map(len, strips)),
        284: [2 if is_planar else 1],
        **({338: [alpha]} if channels == 4 else {}),
    }
    body, longer = struct.pack(f"{order}H", len(entries)), b""
    for tag, values in entries.items():
        wide = tag in (256, 257, 273, 278, 279)
        packed = struct.pack(f"{order}{len(values)}{'I' if wide else 'H'}", *values)
        if len(packed) > 4:
            start = end + 2 + 12 * len(entries) + 4 + len(longer)
            packed, longer = struct.pack(f"{order}I", start), longer + packed
        body += struct.pack(f"{order}HHI", tag, 4 if wide else 3, len(values)) + packed.ljust(4, b"\0")
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", end)
    return b"".join([head, *strips]).ljust(end, b"\0") + body + bytes(4) + longer
