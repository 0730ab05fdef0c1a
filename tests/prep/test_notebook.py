"""Values and bars in a notebook, which a real kernel runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tfshards.prep import Arrays, build, plan, verify
from tfshards.schemas.summary import MAX_ROWS, html_table

CELLS = (
    "import numpy as np\nfrom tfshards import prep\nsource = prep.Arrays({'x': np.arange(3000)})",
    "prep.plan(source, 'out')",
    "prep.build(source, 'out')",
    "prep.verify('out')",
)
TABLE, BAR = "text/html", "application/vnd.jupyter.widget-view+json"


@pytest.mark.nightly
def test_a_notebook_shows_tables_and_its_own_bars(tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    _, planned, built, verified = [
        {kind: text for output in cell.outputs for kind, text in output.get("data", {}).items()}
        for cell in notebook.cells
    ]
    assert "<th>train</th><td>3,000</td>" in planned[TABLE]
    assert "<th>train</th><td>3,000</td>" in built[TABLE]
    assert built[BAR]["model_id"]
    assert verified[TABLE] == "<p>out: sound</p>"
    assert verified[BAR]["model_id"]


def test_a_manifest_and_a_plan_are_tables_with_escaped_names(tmp_path):
    labels = np.arange(40) % 2
    names = ("<b>cat</b>", "dog")
    source = Arrays({"x": np.arange(40), "y": labels}, label="y", class_names=names)
    found = plan(source, tmp_path / "out", shards=2)._repr_html_()
    assert "<tr><th>train</th><td>40</td><td>2</td>" in found
    assert "<tr><th>&lt;b&gt;cat&lt;/b&gt;</th><td>20</td></tr>" in found
    manifest = build(source, tmp_path / "out", shards=2, log=lambda _: None)
    found = manifest._repr_html_()
    assert f"<caption>out, build {manifest.build_id}</caption>" in found
    assert "<tr><th>&lt;b&gt;cat&lt;/b&gt;</th><td>20</td></tr>" in found
    assert "entries: 40 = 40 accepted + 0 rejected + 0 skipped" in found


def test_a_manifest_without_labels_has_no_table_of_classes(tmp_path):
    manifest = build(Arrays({"x": np.arange(4)}), tmp_path / "out", log=lambda _: None)
    assert manifest._repr_html_().count("<table>") == 1


def test_a_verification_is_a_table_of_problems(tmp_path):
    build(Arrays({"x": np.arange(4)}), tmp_path / "out", log=lambda _: None)
    assert verify(tmp_path / "out")._repr_html_() == f"<p>{tmp_path / 'out'}: sound</p>"
    (shard,) = Path(tmp_path / "out").glob("*.tfrecord-*")
    shard.write_bytes(b"")
    found = verify(tmp_path / "out")._repr_html_()
    assert f"<tr><th>{shard.name}</th><td>has 0 bytes, but the manifest lists" in found


def test_a_long_table_ends_after_its_first_rows():
    found = html_table("numbers", ["n"], [[str(number)] for number in range(MAX_ROWS + 5)])
    assert found.count("<tr>") == 1 + MAX_ROWS
    assert found.endswith("</table><p>and 5 more</p>")
