"""Verbs in any order leave a dataset that holds what a dict says, wherever it is and whatever runs them."""

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.campaigns import SCALE, cases
from tests.engines.conftest import engine  # noqa: F401
from tests.storage.conftest import lead_to, new_bucket

from .inputs import KINDS
from .machine import Verbs
from .places import Disk, Objects

PROCESSES = ["--runner=DirectRunner", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]


def run(kind, few, nightly, places=None, steps=12):
    """Run some verbs on inputs of a kind, in some places."""
    attributes = {"inputs": staticmethod(KINDS[kind])}
    if places:
        attributes["places"] = staticmethod(places)
    # to find the least example takes minutes
    phases = [Phase.generate, Phase.shrink] if SCALE else [Phase.generate]
    run_state_machine_as_test(
        type(f"VerbsOf{kind.title()}", (Verbs,), attributes),
        settings=settings(max_examples=cases(few, nightly), stateful_step_count=steps, phases=phases),
    )


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_holds_what_its_verbs_have_made(kind):
    run(kind, 5, 100)


@pytest.mark.nightly
@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["photos", "table"])
def test_a_dataset_in_a_bucket_has_the_bytes_of_one_on_a_disk(kind, running_servers, monkeypatch):
    server = running_servers.get("moto")
    lead_to(server, monkeypatch)
    run(kind, 2, 20, lambda home: [Disk(home), Objects(new_bucket(server), "some")])


@pytest.mark.processes
@pytest.mark.campaign
def test_worker_processes_of_beam_write_the_bytes_of_the_local_engine():
    beam = {"beam_args": PROCESSES}
    run("photos", 1, 10, lambda home: [Disk(home / "a"), Disk(home / "b", beam)])


@pytest.mark.engines
def test_workers_of_flink_write_the_bytes_of_the_local_engine(engine):  # noqa: F811
    flink = {"beam_args": engine.options}
    # a job takes ten seconds and more
    run("photos", 1, 5, lambda home: [Disk(home / "a"), Disk(home / "b", flink)], steps=4)
