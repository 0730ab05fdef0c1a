"""The label map: taken from a file or a dataset, otherwise sorted, and never guessed."""

import numpy as np
import pytest

from tests.prep.table_files import write_parquet
from tests.surface.command import main
from tfshards.prep import Arrays, Options, Table
from tfshards.schemas import read_manifest

HOSTILE = [
    "\ufeffcat",
    "\\n",
    "ends in \\",
    "\x85",
    "\u2028",
    "a\nb",
    "\U0010ffff",
    "\u202egnp.",
    " a ",
    "猫",
]


def build_with(table, out, *flags):
    return main(["build", "table", str(table), str(out), "--name=data", "--quiet", *flags])


def test_the_map_of_a_dataset_and_its_labels_txt_give_the_same_dataset(tmp_path, quiet_build, capsys):
    labels = [name.encode() for name in HOSTILE] + [b"caf\xe9"]
    path = write_parquet(tmp_path / "t.parquet", {"label": labels})
    names = (*HOSTILE, "caf\udce9")
    first = quiet_build(Table(path, class_names=names), tmp_path / "1", options=Options(name="data"))
    assert first.schema.class_names == names
    assert build_with(path, tmp_path / "2", f"--class-names={tmp_path}/1/{first.folder}/labels.txt") == 0
    assert build_with(path, tmp_path / "3", f"--class-names={tmp_path}/1") == 0
    assert read_manifest(tmp_path / "2") == read_manifest(tmp_path / "3") == first
    quiet_build(Arrays({"label": np.arange(4)}), tmp_path / "numbers")
    assert build_with(path, tmp_path / "4", f"--class-names={tmp_path}/numbers") == 1
    assert "numbers" in capsys.readouterr().err


# the text, and the number of the line that is at fault
FAULTY = {
    "nothing": (b"", 1),
    "an empty line": (b"cat\n\ndog\n", 2),
    "a name twice": (b"cat\ndog\ncat\n", 3),
    "a lone backslash": (b"a\nb\\\n", 2),
    "an escape that is none": (b"a\\d\n", 1),
    "an escape of Python that labels.txt has not": (b"\\N{BULLET}\n", 1),
    "no UTF-8": (b"caf\xe9\n", 3),
}


@pytest.mark.parametrize(("text", "number"), FAULTY.values(), ids=FAULTY)
def test_a_faulty_line_is_named(text, number, tmp_path, capsys):
    (tmp_path / "map.txt").write_bytes(text)
    path = write_parquet(tmp_path / "t.parquet", {"label": ["cat"]})
    assert build_with(path, tmp_path / "out", f"--class-names={tmp_path}/map.txt") == 1
    message = capsys.readouterr().err.partition("map.txt")[2]
    assert str(number) in message
    assert not (tmp_path / "out").exists()
