import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfshards.schemas import FormatError
from tfshards.schemas.index import labels_bytes, labels_path, parse_labels

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, max_size=20))
def test_any_labels_are_read_back_from_their_bytes(labels):
    data = labels_bytes(labels)
    assert data == b"".join(label.to_bytes(8, "little", signed=True) for label in labels)
    found = parse_labels(data, len(labels), "x.labels")
    assert (found.dtype, found.tolist()) == (np.dtype(np.int64), labels)
    assert labels_bytes(found) == data


@pytest.mark.parametrize("num_bytes", [0, 1, 15, 17, 24])
def test_a_file_without_one_label_per_record_is_refused(num_bytes):
    message = (
        rf"^index/x\.labels: 1 problem\n  index/x\.labels: has {num_bytes} bytes; the labels of 2 .* have 16$"
    )
    with pytest.raises(FormatError, match=message):
        parse_labels(bytes(num_bytes), 2, "index/x.labels")


def test_labels_are_next_to_the_index_of_their_shard():
    assert labels_path("a-00000-of-00002") == "index/a-00000-of-00002.labels"
    assert labels_path("part/a.tfrecord") == "part/index/a.tfrecord.labels"
