"""What a release consists of: workflows, whose actions are named by digests, and the bill of materials."""

import json
import re
import subprocess
import sys
from importlib.metadata import requires, version

import pytest
import yaml

from tests.packaging.test_installations import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_commit_and_every_right_is_given_to_one_job(path):
    used = re.findall(r"uses: (.+)", path.read_text())
    assert used
    assert [
        action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)
    ] == []
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    assert all("permissions" in job and "timeout-minutes" in job for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_targets_of_make_that_a_workflow_runs_exist(path):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"\bmake ([\w-]+)", path.read_text()))
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        named |= set(job.get("strategy", {}).get("matrix", {}).get("target", ()))
    assert named
    assert named <= targets


def test_only_the_job_that_publishes_has_an_identity_and_it_checks_out_no_code():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]
    assert not any("checkout" in step.get("uses", "") or "run" in step for step in jobs["publish"]["steps"])


# The software bill of materials, of an installation with one extra


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
