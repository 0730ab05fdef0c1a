from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfshards.schemas import FormatError
from tfshards.schemas.index import MAX_LINE, RecordIndex, index_path, parse_index

TEXT = "0 16\n16 20\n36 1016\n"


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
    assert index_of([16, 20, 1016]).to_text() == TEXT


def test_the_longest_line_has_max_line_bytes():
    line = f"{10**18 - 1} {10**18 - 1}\n"
    assert len(line) == MAX_LINE
    with pytest.raises(FormatError, match=r"^x\.idx"):
        parse_index(line, "x.idx")


def test_the_first_line_can_be_the_damaged_one():
    with pytest.raises(FormatError, match=r"line 1: is 'x', must be two integers"):
        parse_index("x\ny\nz\n", "x.idx")


def test_an_index_cannot_be_changed_and_equals_only_itself():
    index = index_of([16])
    with pytest.raises(FrozenInstanceError):
        index.lengths = index.lengths
    assert index == index
    assert index != index_of([16])


def test_an_empty_shard_has_an_empty_index():
    assert index_of([]).to_text() == ""
    assert parse_index("", "x.idx").num_bytes == 0


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
    ("text", "line", "message"),
    [
        pytest.param("0 16\n16 20", 2, "is '16 20', must be two integers and a newline", id="cut at the end"),
        pytest.param("0 16\n\n16 16\n", 2, "is '', must be", id="an empty line"),
        pytest.param("0 16\n16\n", 2, "is '16', must be", id="one number"),
        pytest.param("0 16 16\n", 1, "is '0 16 16', must be", id="three numbers"),
        pytest.param("0  16\n", 1, "is '0  16', must be", id="two spaces"),
        pytest.param("0 16\r\n", 1, r"is '0 16\\r', must be", id="line ends of Windows"),
        pytest.param("-0 16\n", 1, "is '-0 16', must be", id="a sign"),
        pytest.param("0 \u0661\u0666\n", 1, "is '0 \u0661\u0666', must be", id="Arabic digits"),
        pytest.param(f"0 {10**18}\n", 1, "is '0 1000000000000000000', must", id="19 digits could overflow"),
        pytest.param("0 16\n" + "x" * 500 + "\n", 2, f"is '{'x' * 40}', must be", id="a long line is cut"),
        pytest.param("1 16\n", 1, "is 1 16, but the record starts at 0", id="bytes before the first"),
        pytest.param("0 16\n17 16\n", 2, "is 17 16, but the record starts at 16", id="a gap"),
        pytest.param("0 16\n15 16\n", 2, "is 15 16, but the record starts at 16", id="an overlap"),
        pytest.param("0 16\n16 15\n", 2, "is 16 15, .* has at least 16 bytes", id="shorter than a frame"),
        pytest.param("0 16\n16 15\n99 1\n", 2, "is 16 15", id="the first of several"),
        pytest.param(
            "".join(f"{n} {10**18 - 1}\n" for n in range(12)), 2, "is 1 9999", id="sums that overflow int64"
        ),
    ],
)
def test_a_wrong_line_is_named(text, line, message):
    with pytest.raises(FormatError, match=rf"^x\.idx: 1 problem\n  line {line}: {message}"):
        parse_index(text, "x.idx")


@pytest.mark.parametrize(
    ("shard", "path"),
    [
        ("a-train-3f9a2c1b.tfrecord-00000-of-00002", "index/a-train-3f9a2c1b.tfrecord-00000-of-00002.idx"),
        ("part/a.tfrecord", "part/index/a.tfrecord.idx"),
    ],
    ids=["at the top", "in a folder"],
)
def test_an_index_is_in_a_folder_next_to_its_shard(shard, path):
    assert index_path(shard) == path
