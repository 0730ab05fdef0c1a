"""Roles of table columns: given by the user, or derived from their names."""

from tests.prep.table_files import write_text
from tfshards.prep.cli.main import main
from tfshards.schemas import read_manifest


def test_the_index_of_pandas_is_dropped_by_its_empty_name(tmp_path, capsys):
    table, out = write_text(tmp_path / "rows.csv", ",x", "0,5", "1,6"), str(tmp_path / "out")
    assert main(["build", "table", str(table), out]) == 1
    assert "leave it out with --drop ''" in capsys.readouterr().err
    assert main(["build", "table", str(table), out, "--drop", ""]) == 0
    assert read_manifest(out).schema.names == ("x", "key")
