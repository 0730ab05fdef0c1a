import pytest

from tfshards.schemas.names import name_fault, shard_path_fault


@pytest.mark.parametrize("name", ["a", "Train_2", "0.5", "a-b.c-d", "tail.", "x" * 80])
def test_a_valid_name_is_accepted(name):
    assert name_fault(name) is None


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="none at all"),
        pytest.param(".hidden", id="hidden from listings"),
        pytest.param("_a", id="starts with neither letter nor digit"),
        pytest.param("-a", id="looks like an option"),
        pytest.param("a-", id="would run into the next part"),
        pytest.param("a--b", id="an empty part"),
        pytest.param("a/b", id="a folder"),
        pytest.param("a b", id="a space"),
        pytest.param("größe", id="not ASCII"),
        pytest.param("a\n", id="a line's end"),
        pytest.param("a*", id="a pattern"),
    ],
)
def test_a_name_that_could_break_a_path_or_a_report_is_refused(name):
    assert name_fault(name) == (
        f"{name!r} must be letters, digits, '_', '.' and single '-', starting with a letter or digit"
    )


def test_a_name_too_long_for_a_file_system_is_refused():
    assert name_fault("x" * 81) == f"'{'x' * 81}' has 81 characters; at most 80 are allowed"


def test_names_of_the_maximum_length_make_valid_file_names():
    shard = f"{'d' * 80}-{'s' * 80}-3f9a2c1b.tfrecord-00000-of-00064"
    # temporary name of labels
    assert len(f".{shard}.labels.{'0' * 16}.tmp") <= 255


@pytest.mark.parametrize(
    "path",
    [
        "photos-train-3f9a2c1b.tfrecord-00000-of-00064",
        "part one/größe.tfrecord",
        "a/b/c",
        "index.tfrecord",
        "labels",
        "a..b",
        "sub/dataset.json",
    ],
)
def test_a_relative_path_is_accepted(path):
    assert shard_path_fault(path) is None


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        pytest.param("", "must be a relative path of printable", id="no path"),
        pytest.param("/etc/passwd", "must be a relative path", id="absolute"),
        pytest.param("a\\b", "must be a relative path", id="a separator of Windows"),
        pytest.param("gs://bucket/a", "must be a relative path", id="elsewhere"),
        pytest.param("C:a", "must be a relative path", id="a drive"),
        pytest.param("a\nb", "must be a relative path", id="breaks a report"),
        pytest.param("a\0b", "must be a relative path", id="breaks a system call"),
        pytest.param("\udc80", "must be a relative path", id="not UTF-8"),
        pytest.param("../a", "must not contain '..', '.', hidden or empty parts", id="outside"),
        pytest.param("a/../../b", "must not contain", id="outside by a detour"),
        pytest.param("a/..", "must not contain", id="ends upwards"),
        pytest.param("./a", "must not contain", id="another spelling of a"),
        pytest.param("a//b", "must not contain", id="another spelling of a/b"),
        pytest.param("a/", "must not contain", id="a folder"),
        pytest.param(".build/a", "must not contain", id="where builds keep their plans"),
        pytest.param("index/a.idx", "is reserved for another file", id="an index"),
        pytest.param("part/index/a.idx", "is reserved", id="an index of a shard in a folder"),
        pytest.param("index", "is reserved", id="the folder of indexes"),
        pytest.param("dataset.json", "is reserved", id="the manifest"),
        pytest.param("labels.txt", "is reserved", id="the class names"),
        pytest.param("label.labels.txt", "is reserved", id="TFDS's class names"),
        pytest.param("dataset_info.json", "is reserved", id="TFDS's manifest"),
        pytest.param("features.json", "is reserved", id="TFDS's schema"),
        pytest.param("rejected-3f9a2c1b.jsonl", "is reserved", id="the rejects"),
    ],
)
def test_a_path_that_leaves_the_dataset_or_collides_is_refused(path, fault):
    assert shard_path_fault(path).startswith(f"{path!r} {fault}")
