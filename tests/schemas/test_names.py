import pytest

from tfshards.schemas.names import name_fault, shard_path_fault


@pytest.mark.parametrize("name", ["a", "Train_2", "0.5", "a-b.c-d", "tail.", "x" * 80])
def test_a_valid_name_is_accepted(name):
    assert name_fault(name) is None


@pytest.mark.parametrize(
    "name", ["", ".hidden", "_a", "-a", "a-", "a--b", "a/b", "a b", "größe", "a\n", "a*", "x" * 81]
)
def test_a_name_that_could_break_a_path_or_a_report_is_refused(name):
    assert name_fault(name).startswith(repr(name))


def test_names_of_the_maximum_length_make_valid_file_names():
    shard = f"{'d' * 80}-{'s' * 80}-3f9a2c1b.tfrecord-00000-of-00064"
    # temporary name of labels
    assert len(f".{shard}.labels.{'0' * 16}.tmp") <= 255


@pytest.mark.parametrize(
    "path",
    ["photos-3f9a2c1b.tfrecord-00000-of-00064", "part one/größe.tfrecord", "a/b/c", "index.tfrecord"]
    + ["labels", "a..b", "sub/dataset.json"],
)
def test_a_relative_path_is_accepted(path):
    assert shard_path_fault(path) is None


# a separator of Windows, another store, a drive, what breaks a report or a system call, and no UTF-8
OUTSIDE = ["", "/etc/passwd", "a\\b", "gs://bucket/a", "C:a", "a\nb", "a\0b", "\udc80"]
# another spelling of a path, or where builds keep their plans
SPELLED = ["../a", "a/../../b", "a/..", "./a", "a//b", "a/", ".build/a"]
RESERVED = ["index/a.idx", "part/index/a.idx", "index", "dataset.json", "labels.txt", "label.labels.txt"]
RESERVED += ["dataset_info.json", "features.json", "rejected-3f9a2c1b.jsonl", "generations/0.json"]


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        *((path, "must be a relative path of printable") for path in OUTSIDE),
        *((path, "must not contain '..', '.', hidden or empty parts") for path in SPELLED),
        *((path, "is reserved for another file") for path in RESERVED),
    ],
)
def test_a_path_that_leaves_the_dataset_or_collides_is_refused(path, fault):
    assert shard_path_fault(path).startswith(f"{path!r} {fault}")
