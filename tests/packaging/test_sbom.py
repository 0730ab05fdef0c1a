"""The software bill of materials, of an installation with one extra."""

import json
import re
import subprocess
import sys
from importlib.metadata import requires, version

import pytest

from tests.packaging.installations import ROOT


@pytest.mark.nightly
def test_the_bill_of_materials_lists_each_requirement_with_its_version(tmp_path):
    output = tmp_path / "sbom.cdx.json"
    subprocess.run([sys.executable, ROOT / ".ci" / "sbom.py", output, "prep"], check=True)
    bill = json.loads(output.read_text())
    own = bill["metadata"]["component"]
    assert (bill["bomFormat"], own["name"], own["version"]) == ("CycloneDX", "tfshards", version("tfshards"))
    listed = {_normalized(component["name"]): component["version"] for component in bill["components"]}
    base = [text for text in requires("tfshards") if "extra ==" not in text]
    prep = [text for text in requires("tfshards") if re.search(r"extra == .prep.$", text)]
    names = {_normalized(re.match(r"[\w.-]+", t)[0]) for t in base + prep if "python_version" not in t}
    assert {"numpy", "apache-beam", "pillow"} <= names <= set(listed)
    assert all(re.match(r"\d", number) for number in listed.values())
    # what requires what: tfshards is the root, and its requirements have requirements, too
    graph = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    of_root = {_normalized(reference.partition("==")[0]) for reference in graph["root-component"]}
    assert {"numpy", "apache-beam", "pillow"} <= of_root
    assert "tensorflow" not in listed
    # no path of the machine that made it
    assert str(tmp_path) not in output.read_text()
    assert str(ROOT) not in output.read_text()


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
