"""A toy source kind, the lines of a text file, works with every verb when added to the table of kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.surface.command import main
from tfshards.prep.sources.base import Accepted, Listing, Outcome
from tfshards.prep.sources.kinds import KINDS, Kind
from tfshards.schemas import Feature, OptionsError, Schema, read_manifest
from tfshards.schemas.json_reader import Json


@dataclass(frozen=True)
class Lines:
    """The lines of a text file, each an example; the key is the line number.

    Attributes:
        path: text file.
        upper: store capital letters.
    """

    path: str
    class_names: None = None
    upper: bool = False

    @classmethod
    def from_recorded(cls, options, inputs, schema) -> Lines:
        return cls(inputs[0], upper=options["upper"])

    def stage(self, folder: Path | None, *, group_by: str | None = None) -> Lines:
        if group_by is not None:
            raise OptionsError(f"group_by={group_by!r}: lines have no groups")
        return self

    def location(self) -> None:
        return None

    def with_class_names(self, names) -> Lines:
        return self

    def options(self) -> dict[str, Json]:
        return {"source": "lines", "upper": self.upper}

    def listing(self) -> Listing:
        lines = self._lines()
        return Listing(
            schema=Schema((Feature("text", "bytes", "bytes"), Feature("key", "bytes", "bytes"))),
            keys=[b"%06d" % number for number in range(len(lines))],
            sizes=np.array([len(line) for line in lines], dtype=np.int64),
            stamps=np.zeros(len(lines), dtype=np.int64),
        )

    def read(self, rows, schema: Schema) -> Iterator[Outcome]:
        lines = self._lines()
        return (Accepted((lines[int(row.key)], row.key.encode())) for row in rows)

    def _lines(self) -> list[bytes]:
        data = Path(self.path).read_bytes()
        return (data.upper() if self.upper else data).splitlines()


LINES = Kind(
    name="lines",
    where=f"{__name__}:Lines",
    help="lines of a text file",
    can_reject=False,
)


@pytest.fixture
def text(tmp_path, monkeypatch) -> Path:
    """A file of 12 lines, with the kind in the table."""
    monkeypatch.setitem(KINDS, LINES.name, LINES)
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line {number}\n" for number in range(12)))
    return path


def test_a_toy_kind_is_planned_built_read_verified_repaired_and_appended_to(text, tmp_path, capsys):
    source, out = str(text), str(tmp_path / "out")
    build = ["lines", source, out, "--upper", "--shards=3", "--splits=train=0.75", "--splits=val=0.25"]
    assert main(["plan", *build, "--json"]) == 0
    planned = capsys.readouterr().out
    assert main(["build", *build]) == 0
    manifest = read_manifest(out)
    capsys.readouterr()
    assert main(["plan", *build, "--json"]) == 0
    assert capsys.readouterr().out == planned
    assert manifest.options["source"] == "lines"
    assert manifest.num_examples == 12
    capsys.readouterr()
    assert main(["info", out]) == 0
    assert "text" in capsys.readouterr().out
    assert main(["show", out, "000007"]) == 0
    assert "LINE 7" in capsys.readouterr().out
    assert main(["verify", out, "--deep"]) == 0
    shard = tmp_path / "out" / manifest.shards[0].path
    sound = shard.read_bytes()
    shard.write_bytes(sound[:-1] + b"?")
    assert main(["verify", out]) == 1
    assert main(["verify", out, "--repair"]) == 1
    assert main(["build", *build, "--overwrite"]) == 0
    assert shard.read_bytes() == sound
    with text.open("a") as file:
        file.write("line 12\nline 13\n")
    assert main(["append", source, out]) == 0
    assert read_manifest(out).num_examples == 14
    assert main(["verify", out, "--deep"]) == 0
    assert shard.read_bytes() == sound
