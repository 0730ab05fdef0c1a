"""Values and bars in a notebook, which a real kernel runs."""

import pytest

CELLS = (
    "import numpy as np\nfrom tfshards import prep\nsource = prep.Arrays({'x': np.arange(3000)})",
    "prep.plan(source, 'out')",
    "prep.build(source, 'out')",
    "prep.verify('out')",
)
TEXT, BAR = "text/plain", "application/vnd.jupyter.widget-view+json"


@pytest.mark.nightly
def test_a_notebook_shows_values_and_its_own_bars(tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    _, planned, built, verified = [
        {kind: text for output in cell.outputs for kind, text in output.get("data", {}).items()}
        for cell in notebook.cells
    ]
    assert "train" in planned[TEXT]
    assert "build " in built[TEXT]
    assert built[BAR]["model_id"]
    assert verified[TEXT] == "out: sound"
    assert verified[BAR]["model_id"]
