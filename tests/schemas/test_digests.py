"""CRC-32C compared with published values, and the digest of records."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfshards.schemas.digests import NUM_LAST_BYTES, digest_together, examples_digest, masked_crc32c_of_rows

RECORDS = st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**32 - 1)), max_size=20)


def digest_of(records):
    lengths, checksums = zip(*records, strict=True) if records else ((), ())
    return examples_digest(np.array(lengths, np.int64), np.array(checksums, np.uint32))


def splitmix(state):
    """A step of SplitMix64, in integers of any size."""
    state = (state + 0x9E3779B97F4A7C15) % 2**64
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
    return state ^ state >> 31


def test_the_digest_is_pinned():
    assert digest_of([]) == "0" * 16
    # the first number that SplitMix64 gives with the seed 0
    assert digest_of([(0, 0)]) == "e220a8397b1dcdaf"
    assert digest_of([(47, 0xFF87031A), (1, 2)]) == "399436b23d42f38b"


@given(RECORDS)
def test_the_digest_is_the_sum_of_one_number_per_record(records):
    total = sum(splitmix((length % 2**32 << 32) + checksum) for length, checksum in records) % 2**64
    assert digest_of(records) == f"{total:016x}"


@given(RECORDS, st.randoms(use_true_random=False), st.integers(0, 20))
def test_neither_order_nor_the_assignment_to_shards_changes_the_digest(records, chance, cut):
    shuffled = chance.sample(records, len(records))
    assert digest_of(shuffled) == digest_of(records)
    assert digest_together([digest_of(shuffled[:cut]), digest_of(shuffled[cut:])]) == digest_of(records)


def test_digests_are_added_modulo_two_to_the_64():
    assert digest_together(["ffffffffffffffff", "0000000000000002"]) == "0000000000000001"
    assert digest_together(["8000000000000000", "4000000000000000"]) == "c000000000000000"


@given(RECORDS.filter(bool), st.data())
def test_a_lost_repeated_or_exchanged_record_changes_the_digest(records, data):
    place = data.draw(st.integers(0, len(records) - 1))
    others = records[:place] + records[place + 1 :]
    assert digest_of(others) != digest_of(records)
    assert digest_of([*records, records[place]]) != digest_of(records)
    length, checksum = records[place]
    assert digest_of([*others, (length, checksum ^ 1)]) != digest_of(records)
    assert digest_of([*others, (length ^ 1, checksum)]) != digest_of(records)


def test_the_manifest_holds_the_last_eight_bytes_of_a_file():
    assert NUM_LAST_BYTES == 8


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"123456789", 0xE3069283),
        (b"", 0),
        # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_checksums_are_the_published_ones(data, crc):
    rotated = (int(masked_crc32c_of_rows(np.frombuffer(data, np.uint8)[np.newaxis])[0]) - 0xA282EAD8) % 2**32
    assert (rotated >> 17 | rotated << 15) % 2**32 == crc


def test_each_row_has_its_own_checksum():
    lengths = np.array([47, 0], "<u8").view(np.uint8).reshape(2, 8)
    # the first is the header of the example in docs/format.md
    assert masked_crc32c_of_rows(lengths).tolist() == [0x501D5D6D, int(masked_crc32c_of_rows(lengths[1:])[0])]
    assert masked_crc32c_of_rows(np.zeros((0, 8), np.uint8)).shape == (0,)
