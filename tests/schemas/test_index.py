"""The files of a shard: the index, and the labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfshards.schemas import FormatError
from tfshards.schemas.index import (
    MAX_LINE,
    RecordIndex,
    index_path,
    labels_bytes,
    labels_path,
    parse_index,
    parse_labels,
)


def index_of(lengths):
    return RecordIndex(np.array(lengths, dtype=np.int64))


@given(st.lists(st.integers(16, 2**40), max_size=50))
def test_any_index_is_read_back_from_its_text(lengths):
    index = parse_index(index_of(lengths).to_text(), "x.idx")
    assert index.lengths.dtype == np.int64
    assert index.lengths.tolist() == lengths
    assert index.offsets.tolist() == [sum(lengths[:i]) for i in range(len(lengths))]
    assert index.num_bytes == sum(lengths)


def test_the_text_has_one_line_of_offset_and_length_per_record():
    assert index_of([16, 20, 1016]).to_text() == "0 16\n16 20\n36 1016\n"
    assert index_of([]).to_text() == ""
    assert len(f"{10**18 - 1} {10**18 - 1}\n") == MAX_LINE


@given(st.data())
def test_a_damaged_index_is_reported_or_contradicts_the_manifest(data):
    lengths = data.draw(st.lists(st.integers(16, 500), min_size=1, max_size=6))
    text = index_of(lengths).to_text()
    place = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.text("0123456789 \n-.\u0663", max_size=2))
    cut = data.draw(st.integers(0, 3))
    damaged = text[:place] + put + text[place + cut :]
    try:
        index = parse_index(damaged, "x.idx")
    except FormatError:
        return
    same = index.lengths.tolist() == lengths
    assert same or (len(index.lengths), index.num_bytes) != (len(lengths), sum(lengths))


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("0 16\n16 20", 2, "'16 20'"),
        ("0 16\n\n16 16\n", 2, "''"),
        ("0 16\n16\n", 2, "'16'"),
        ("0 16 16\n", 1, "'0 16 16'"),
        ("0  16\n", 1, "'0  16'"),
        ("0 16\r\n", 1, r"'0 16\\r'"),
        ("-0 16\n", 1, "'-0 16'"),
        ("x\ny\n", 1, "'x'"),
        # Arabic digits
        ("0 \u0661\u0666\n", 1, "'0 \u0661\u0666'"),
        # 19 digits could overflow
        (f"0 {10**18}\n", 1, "'0 1000000000000000000'"),
        ("0 16\n" + "x" * 500 + "\n", 2, f"'{'x' * 40}'"),
        ("1 16\n", 1, "1 16, but the record starts at 0"),
        ("0 16\n17 16\n", 2, "17 16, but the record starts at 16"),
        ("0 16\n15 16\n", 2, "15 16, but the record starts at 16"),
        ("0 16\n16 15\n99 1\n", 2, "16 15, .* has at least 16 bytes"),
        # sums that overflow int64
        ("".join(f"{n} {10**18 - 1}\n" for n in range(12)), 2, "1 9999"),
    ],
)
def test_a_wrong_line_is_named(text, line, found):
    with pytest.raises(FormatError, match=rf"^x\.idx: 1 problem\n  line {line}: is {found}"):
        parse_index(text, "x.idx")


def test_the_files_are_in_a_folder_next_to_their_shard():
    assert index_path("a-00000-of-00002") == "index/a-00000-of-00002.idx"
    assert index_path("part/a.tfrecord") == "part/index/a.tfrecord.idx"
    assert labels_path("a-00000-of-00002") == "index/a-00000-of-00002.labels"
    assert labels_path("part/a.tfrecord") == "part/index/a.tfrecord.labels"


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_any_labels_are_read_back_from_their_bytes(labels):
    data = labels_bytes(labels)
    assert data == b"".join(label.to_bytes(8, "little", signed=True) for label in labels)
    found = parse_labels(data, len(labels), "x.labels")
    assert (found.dtype, found.tolist()) == (np.dtype(np.int64), labels)
    assert labels_bytes(found) == data


@pytest.mark.parametrize("num_bytes", [0, 1, 15, 17, 24])
def test_a_file_without_one_label_per_record_is_refused(num_bytes):
    with pytest.raises(FormatError, match=rf"has {num_bytes} bytes; the labels of 2 records have 16$"):
        parse_labels(bytes(num_bytes), 2, "index/x.labels")
