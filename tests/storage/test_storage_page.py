"""The commands and the Python of docs/storage.md run as they are printed, on moto."""

import re
from pathlib import Path

import tensorflow as tf

from tests.test_snippets import commands, two_classes
from tfshards import loader
from tfshards.prep import build
from tfshards.prep.cli import main as cli
from tfshards.schemas.storage import any_path

from .servers import create_bucket

PAGE = Path(__file__).parents[2] / "docs" / "storage.md"


def test_the_page_on_object_stores_runs(server, tmp_path, monkeypatch):
    page = PAGE.read_text()
    create_bucket(server, "pets")
    monkeypatch.chdir(tmp_path)
    two_classes(count=20)
    for path in Path("photos").rglob("*.png"):
        any_path(f"s3://pets/{path}").write_bytes(path.read_bytes())
    monkeypatch.setitem(build.__wrapped__.__kwdefaults__, "engine", "local")
    found = commands(page)
    assert [words[0] for words in found] == ["build", "verify"]
    for words in found:
        assert cli.main(words) == 0, words
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    assert len(blocks) == 2
    names = {"loader": loader, "tf": tf}
    for block in blocks:
        # smaller batches, and a folder that exists
        code = re.sub(r"batch_size=\d+", "batch_size=8", block).replace("disk:/nvme", f"disk:{tmp_path}")
        assert code.count("batch_size=8") == code.count(f"disk:{tmp_path}") == 1
        names.pop("train", None)
        exec(code, names)
        assert len([*names["train"]]) == 2
