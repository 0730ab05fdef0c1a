"""Files of keys, as a verb writes them or people do by hand."""

import json
import os

import pytest

from tests.format_reader import read
from tests.prep.exported import write_dataset
from tests.surface.command import refused, run
from tfshards.schemas import Feature, Schema

SCHEMA = Schema((Feature("key", "bytes", "bytes"),))
KEYS = [b"cat/1.png", b" dog/ 2.png ", b"two\nlines", b'it\'s "so"', b"\xff.png", b'"', b"\xc3\xa4", b"kept"]


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (b"\xef\xbb\xbfcat/1.png\r\n\r\n\n dog/ 2.png \r\n", KEYS[:2]),
        (b'"two\\nlines"\nit\'s "so"\n', KEYS[2:4]),
        # as audit writes all keys
        (
            "".join(json.dumps(key.decode("utf-8", "surrogateescape")) + "\n" for key in KEYS[:-1]).encode(),
            KEYS[:-1],
        ),
    ],
)
def test_plain_lines_and_json_strings_are_keys(tmp_path, content, keys):
    write_dataset(tmp_path / "d", SCHEMA, {"train": [[{"key": key} for key in KEYS]]})
    (tmp_path / "keys").write_bytes(content)
    ended = run(["remove", str(tmp_path / "d"), "--keys", str(tmp_path / "keys")])
    assert ended.status == 0, ended
    assert {*read(tmp_path / "d")["train"]} == {os.fsdecode(key) for key in KEYS if key not in keys}


@pytest.mark.parametrize("line", [b'"a" and b', b'"\\ud800"'])
def test_a_line_with_a_quotation_mark_that_is_no_json_string_is_an_error(tmp_path, line, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_dataset(tmp_path / "d", SCHEMA, {"train": [[{"key": b"a"}]]})
    (tmp_path / "keys").write_bytes(b"a\n" + line)
    refused(["remove", "d", "--keys", "keys"], "2", status=1, code="input")
