"""CRC-32C compared with published values."""

import numpy as np
import pytest

from tfshards.schemas.digests import masked_crc32c_of_rows


def unmasked(crc):
    rotated = (crc - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "crc", "source"),
    [
        (b"123456789", 0xE3069283, "the catalogue's check value"),
        (b"", 0, "nothing"),
        (bytes(32), 0x8A9136AA, "RFC 3720, B.4: zeros"),
        (b"\xff" * 32, 0x62A8AB43, "RFC 3720, B.4: ones"),
        (bytes(range(32)), 0x46DD794E, "RFC 3720, B.4: incrementing"),
        (bytes(range(31, -1, -1)), 0x113FDB5C, "RFC 3720, B.4: decrementing"),
    ],
)
def test_known_values(data, crc, source):
    rows = np.frombuffer(data, np.uint8)[np.newaxis]
    assert unmasked(int(masked_crc32c_of_rows(rows)[0])) == crc, source


def test_each_row_has_its_own_checksum():
    lengths = np.array([47, 0], "<u8").view(np.uint8).reshape(2, 8)
    # the first is the header of the example in docs/format.md
    assert masked_crc32c_of_rows(lengths).tolist() == [0x501D5D6D, int(masked_crc32c_of_rows(lengths[1:])[0])]
    assert masked_crc32c_of_rows(np.zeros((0, 8), np.uint8)).shape == (0,)
