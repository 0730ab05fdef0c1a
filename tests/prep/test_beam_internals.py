"""The undocumented parts of Beam that engines/beam.py uses; each test names what has changed."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners import DirectRunner, create_runner
from apache_beam.runners.portability import job_server, portable_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, worker_handlers
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from tfshards.prep.engines import beam
from tfshards.prep.engines.beam_workers import WORKER_THREADS

ROOT = Path(__file__).parents[2]


def test_the_local_runners_are_found_by_name():
    assert type(create_runner("FnApiRunner")) is FnApiRunner
    assert isinstance(create_runner("DirectRunner"), DirectRunner)
    with pytest.raises(ValueError, match="Unexpected pipeline runner: Flonk"):
        create_runner("Flonk")


def test_the_local_runner_accepts_an_environment_for_its_workers():
    assert "default_environment" in inspect.signature(FnApiRunner).parameters
    environment = SubprocessSDKEnvironment.from_command_string("exec python -m worker 2>> log")
    assert environment.command_string == "exec python -m worker 2>> log"


def test_the_running_mode_is_an_option_that_can_be_changed():
    options = PipelineOptions(["--direct_running_mode=multi_processing"])
    direct = options.view_as(DirectOptions)
    assert direct.direct_running_mode == "multi_processing"
    direct.direct_running_mode = "in_memory"
    assert options.view_as(DirectOptions).direct_running_mode == "in_memory"


def test_the_parser_of_all_options_is_available():
    parsers = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    given, unknown = parsers[0].parse_known_args(["--runner=X", "--unknown=1"])
    assert (given.runner, unknown) == ("X", ["--unknown=1"])


def test_a_worker_process_is_a_module_with_a_main():
    assert sdk_worker_main.__name__ == beam._WORKER_MODULE
    assert callable(sdk_worker_main.main)


@pytest.mark.parametrize("name", WORKER_THREADS)
def test_threads_waiting_for_a_worker_have_the_expected_names(name):
    # A dying worker process is detected only by the exception of a thread of this name; tests/durability
    # kills one.
    assert f"'{name}'" in inspect.getsource(worker_handlers)


SERVERS = {
    "PrismRunner": ["--prism_location=/bin/true", "--job_port=4321"],
    "FlinkRunner": ["--flink_job_server_jar=/bin/true", "--job_port=4321"],
    "SparkRunner": ["--spark_job_server_jar=/bin/true", "--job_port=4321"],
}


@pytest.mark.parametrize(("name", "arguments"), SERVERS.items(), ids=SERVERS.keys())
def test_the_command_of_the_server_that_a_runner_starts_is_available(name, arguments, tmp_path):
    server = create_runner(name).default_job_server(PipelineOptions(arguments))
    assert isinstance(server, job_server.StopOnExitJobServer)
    own = server._job_server
    own._local_temp_root = str(tmp_path)
    command, endpoint = own.subprocess_cmd_and_endpoint()
    assert endpoint == "localhost:4321"
    assert "4321" in map(str, command)
    assert any("/bin/true" in str(word) for word in command)


def test_each_pipeline_has_a_prism_server_of_its_own():
    assert "disable_prism_server_singleton" in inspect.getsource(PrismRunner)


def test_a_job_of_another_process_can_be_cancelled():
    parameters = list(inspect.signature(portable_runner.PipelineResult).parameters)
    assert parameters[:4] == ["job_service", "job_id", "message_stream", "state_stream"]
    result = portable_runner.PipelineResult(None, "job-7", iter(()), iter(()))
    assert beam._Handle(result).job_id == "job-7"
    assert callable(result.cancel)


def test_the_job_service_lists_its_options():
    described = inspect.getsource(portable_runner.JobServiceHandle.get_pipeline_options)
    assert "DescribePipelineOptions" in described
