"""Files of keys hold any key, and read what people write by hand."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.errors import raises
from tfshards.prep.sources.keys import read_keys, to_text, write_keys
from tfshards.schemas import InputError


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(min_size=1)))
def test_any_key_is_read_as_it_was_written(tmp_path, keys):
    path = tmp_path / "keys.txt"
    write_keys(path, map(to_text, keys))
    assert read_keys(path) == keys
    assert path.read_bytes().isascii()


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (b"cat/1.png\ncat/2.png", [b"cat/1.png", b"cat/2.png"]),
        (b"\xef\xbb\xbfcat/1.png\r\n\r\n\n dog/ 2.png \r\n", [b"cat/1.png", b" dog/ 2.png "]),
        (b'"two\\nlines"\nit\'s "so"\n', [b"two\nlines", b'it\'s "so"']),
        (b"\xff.png\n", [b"\xff.png"]),
        (b"", []),
    ],
)
def test_plain_lines_and_json_strings_are_keys(tmp_path, content, keys):
    (tmp_path / "keys").write_bytes(content)
    assert read_keys(tmp_path / "keys") == keys


@pytest.mark.parametrize("line", [b'"a" and b', b'"open', b'"\\ud800"'])
def test_a_line_with_a_quotation_mark_that_is_no_json_string_is_an_error(tmp_path, line):
    (tmp_path / "keys").write_bytes(b"a\n" + line)
    with raises(InputError, "keys-line", number=2):
        read_keys(tmp_path / "keys")


def test_a_path_that_cannot_be_read_is_an_error(tmp_path):
    with raises(InputError, "unreadable"):
        read_keys(tmp_path / "none")
