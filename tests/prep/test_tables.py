"""Tables: files that change, memory, groups, warnings, roles of columns, and what follows a build.

tests/conformance/test_tables.py has what the values of each table become, and which tables are refused.
"""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.errors import raises
from tests.prep.table_files import encoded, examples, write_jsonl, write_parquet, write_text
from tests.surface.command import main
from tfshards.prep import Table, plan
from tfshards.schemas import InputError, read_manifest

ROW = {"path": "a.png", "edge": "m.png", "bbox": [0, 0, 4, 4], "eye": [1, 2, 1], "kind": "cat", "part": "val"}
GIVEN = ["image", "mask", "xywh", "xyv", "label", "split", "drop"]
ROLES = dict(zip([*ROW, "note"], GIVEN, strict=True))


def test_plan_and_info_print_the_role_of_each_column(tmp_path, capsys):
    (tmp_path / "a.png").write_bytes(encoded(1))
    (tmp_path / "m.png").write_bytes(encoded(2, mode="L"))
    path = write_jsonl(tmp_path / "t.jsonl", [{**ROW, "note": "x", "age": 0}, {**ROW, "note": "y", "age": 1}])
    words = ["table", str(path), str(tmp_path / "out"), "--quiet"]
    words += [each for name, role in ROLES.items() for each in ("--roles", f"{name}={role}")]
    assert main(["build", *words]) == 0
    for command in (["plan", *words], ["info", str(tmp_path / "out")]):
        capsys.readouterr()
        assert main(command) == 0
        lines = capsys.readouterr().out.splitlines()
        (line,) = [line for line in lines if line.startswith("columns: ")]
        assert {*line.removeprefix("columns: ").split(", ")} == {f"{n} {role}" for n, role in ROLES.items()}


def test_the_size_of_a_pickled_reader_does_not_depend_on_its_rows(tmp_path):
    sizes = []
    for num_rows in (10, 10_000):
        numbers = [*range(num_rows)]
        rows = {"file_name": [f"{number}.png" for number in numbers], "x": [*map(str, numbers)]}
        (tmp_path / "0.png").touch()
        (tmp_path / str(num_rows)).mkdir()
        reader = Table(write_parquet(tmp_path / "t.parquet", rows)).stage(tmp_path / str(num_rows))
        assert reader.listing().num_examples == num_rows
        sizes.append(len(pickle.dumps(reader)))
    assert sizes[1] <= sizes[0] + 20
    assert sizes[1] < 4_000


def test_a_line_that_is_too_long_is_reported(tmp_path, monkeypatch):
    path = write_text(tmp_path / "rows.csv", "a,b", "x" * (3 << 20) + ",1")
    monkeypatch.setattr("tfshards.prep.sources.text_tables._LONGEST", 1 << 20)
    with pytest.raises(InputError, match=r"rows\.csv:2"):
        Table(path).stage(tmp_path)


def test_equal_rows_are_equal_builds(tmp_path, quiet_build):
    rows = {"n": [3, 1, 2], "s": ["a", "b", "c"], "v": [[1], [], [2, 3]], "label": ["x", "y", "x"]}
    table = pa.table(rows)
    parts = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    sources = [write_parquet(tmp_path / "rows.parquet", rows), table, parts, table.to_pandas()]
    lines = [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
    sources += [write_jsonl(tmp_path / "rows.jsonl", lines)]
    outs = [tmp_path / str(number) / "out" for number in range(len(sources))]
    ids = {quiet_build(Table(source), out).build_id for source, out in zip(sources, outs, strict=True)}
    assert len(ids) == 1


def test_images_in_a_table_are_read_in_parts(tmp_path, quiet_build):
    """Memory does not hold all images: a file of 96 MB is staged with half of that."""
    image = encoded(1) + bytes(1 << 20)
    path = tmp_path / "rows.parquet"
    with pq.ParquetWriter(path, pa.schema([("image", pa.binary())]), compression="none") as writer:
        for _ in range(96):
            writer.write_table(pa.table({"image": [image]}))
    pa.default_memory_pool().release_unused()
    before = pa.default_memory_pool().max_memory()
    (tmp_path / "staged").mkdir()
    reader = Table(path).stage(tmp_path / "staged")
    assert reader.listing().num_examples == 96
    assert pa.default_memory_pool().max_memory() <= max(before, 48 << 20)


@pytest.mark.parametrize(
    "source",
    [pd.Series([1, 2], name="x"), pd.DataFrame({"x": [1, "a"]}), pd.DataFrame({"x": [np.zeros((2, 2))]})],
    ids=["a series", "mixed types", "arrays in cells"],
)
def test_what_arrow_cannot_read_as_a_table_is_refused(source, tmp_path):
    with raises(InputError, "is not a table that Arrow can read"):
        plan(Table(source), tmp_path / "out")


def test_an_index_of_pandas_without_a_name_is_not_stored(tmp_path):
    frame = pd.DataFrame({"label": [*"abab"], "age": [31.0, 2.0, None, 4.0]}).dropna(subset=["age"])
    named = frame.set_index(pd.Index([7, 9, 0], name="id"))
    for rows, features in ((frame, {"label", "age", "key"}), (named, {"label", "age", "id", "key"})):
        rows.to_parquet(tmp_path / "rows.parquet")
        for source in (rows, tmp_path / "rows.parquet"):
            assert {*plan(Table(source), tmp_path / "out").listing.schema.names} == features


def test_lists_in_text_next_to_images_are_no_boxes(tmp_path):
    (tmp_path / "a.png").write_bytes(encoded(1))
    path = write_text(tmp_path / "metadata.csv", "file_name,bbox", 'a.png,"[1, 2, 3, 4]"')
    with raises(InputError, "'bbox' holds lists as text", "ast.literal_eval", "{'bbox': 'value'}"):
        plan(Table(path), tmp_path / "out")
    assert plan(Table(path, {"bbox": "value"}), tmp_path / "out").listing.schema["bbox"].dtype == "bytes"


# Annotations stay with their images through every verb


SIDES, BOXES = (12, 8), {f"{n}.png": [n, 1, n + 3, 4] for n in range(7)}


def table_of(path, names):
    return write_jsonl(path, [{"file_name": name, "boxes": BOXES[name], "kind": "a"} for name in names])


def stored_boxes(out):
    """Return the boxes of each image, whose key may begin with the name of a split."""
    found = {key.rpartition("/")[2]: values["boxes"] for key, values in examples(out).items()}
    assert len(found) == len(examples(out))
    return found


@pytest.fixture
def photos(tmp_path):
    """A folder of photos with the tag of each orientation."""
    (tmp_path / "photos").mkdir()
    for number, name in enumerate(BOXES):
        exif = Image.Exif()
        exif[0x0112] = number + 1
        Image.new("RGB", SIDES).save(tmp_path / "photos" / name, exif=exif)
    return tmp_path / "photos"


def test_boxes_of_a_table_stay_with_their_images_through_every_verb(photos, tmp_path):
    some, out, whole = [*BOXES][:5], tmp_path / "out", tmp_path / "whole"
    table = table_of(tmp_path / "t.jsonl", some)
    flags = ["--root", str(photos), "--roles", "boxes=xyxy", "--boxes-in", "file"]
    assert main(["build", "table", str(table), str(out), *flags, "--resize", "long=6"]) == 0
    table_of(table, BOXES)
    assert main(["append", str(table), str(photos), str(out)]) == 0
    assert main(["build", "table", str(table), str(whole), *flags, "--resize", "long=6"]) == 0
    schema, wanted = read_manifest(whole).schema, stored_boxes(whole)
    assert schema["boxes"].coordinates == "xyxy"
    # the first is upright, and half as large
    assert wanted["0.png"] == [0, 0.5, 1.5, 2]
    assert (read_manifest(out).schema, stored_boxes(out)) == (schema, wanted)
    resharded, merged, keys = tmp_path / "resharded", tmp_path / "merged", tmp_path / "keys.txt"
    assert main(["reshard", str(whole), str(resharded), "--shards", "2"]) == 0
    assert (read_manifest(resharded).schema, stored_boxes(resharded)) == (schema, wanted)
    keys.write_text("\n".join(some))
    assert main(["remove", str(out), "--keys", str(keys)]) == 0
    assert {*stored_boxes(out)} == {*BOXES} - {*some}
    table_of(table, some)
    assert main(["build", "table", str(table), str(tmp_path / "some"), *flags, "--resize", "long=6"]) == 0
    assert main(["merge", f"a={out}", f"b={tmp_path / 'some'}", str(merged), "--as-splits"]) == 0
    assert read_manifest(merged).schema == schema
    found = {key: values["boxes"] for split in "ab" for key, values in examples(merged, split).items()}
    assert found == wanted
    exported, again = tmp_path / "exported", tmp_path / "again"
    assert main(["export", str(whole), str(exported), "--to", "parquet"]) == 0
    (table,) = (exported / "data").glob("*.parquet")
    flags = ["--roles", "boxes=xyxy", "--boxes-in", "upright"]
    assert main(["build", "table", str(table), str(again), *flags]) == 0
    assert sorted(values["boxes"] for values in examples(again).values()) == sorted(wanted.values())
