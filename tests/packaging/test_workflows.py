"""The workflows: what they run exists, and what they fetch is named by a digest."""

import re

import pytest
import yaml

from tests.packaging.installations import ROOT

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
