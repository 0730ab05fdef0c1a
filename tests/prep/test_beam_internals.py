"""The undocumented parts of Beam that docs/engines.md lists; each test names what has changed."""

import inspect

import grpc
import pytest
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners import DirectRunner, create_runner
from apache_beam.runners.portability import job_server, portable_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from tfshards.prep.engines import beam
from tfshards.prep.engines.table import Work
from tfshards.prep.engines.worker import check_versions
from tfshards.prep.progress.lines import WorkProgress
from tfshards.prep.writing.area import BuildArea

from ..engines.processes import free_port


def test_the_local_runners_are_found_by_name():
    assert type(create_runner("FnApiRunner")) is FnApiRunner
    assert isinstance(create_runner("DirectRunner"), DirectRunner)
    with pytest.raises(ValueError, match="Unexpected pipeline runner: Flonk"):
        create_runner("Flonk")


SERVERS = {
    "PrismRunner": "prism_location",
    "FlinkRunner": "flink_job_server_jar",
    "SparkRunner": "spark_job_server_jar",
}


@pytest.mark.parametrize(("name", "option"), SERVERS.items())
def test_the_command_of_the_server_that_a_runner_starts_is_available(name, option, tmp_path):
    options = PipelineOptions([f"--{option}=/bin/true", "--job_port=4321"])
    server = create_runner(name).default_job_server(options)
    assert isinstance(server, job_server.StopOnExitJobServer)
    server._job_server._local_temp_root = str(tmp_path)
    command, endpoint = server._job_server.subprocess_cmd_and_endpoint()
    assert endpoint == "localhost:4321"
    assert "4321" in map(str, command)
    assert any("/bin/true" in str(word) for word in command)


def test_a_runner_that_submits_the_job_itself_has_no_server(tmp_path):
    area = BuildArea(tmp_path, "0123abcd")
    area.open()
    work = Work(print, [], WorkProgress("x", 0), stop=print, area=area)
    options = ["--flink_submit_uber_jar", "--flink_master=localhost:1", "--flink_job_server_jar=/bin/true"]
    with beam._prepared(work, "FlinkRunner", PipelineOptions(options)) as (_, job):
        assert (job.endpoint, job.log_path) == ("", None)


def test_the_parser_of_all_options_is_available():
    parsers = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    given, unknown = parsers[0].parse_known_args(["--runner=X", "--unknown=1"])
    assert (given.runner, unknown) == ("X", ["--unknown=1"])


def test_a_job_of_another_process_can_be_cancelled():
    parameters = list(inspect.signature(portable_runner.PipelineResult).parameters)
    assert parameters[:4] == ["job_service", "job_id", "message_stream", "state_stream"]
    result = portable_runner.PipelineResult(None, "job-7", iter(()), iter(()))
    assert beam._id_of(result) == "job-7"
    assert callable(result.cancel)


def test_an_endpoint_that_does_not_answer_is_noticed_in_time():
    with pytest.raises(grpc.FutureTimeoutError):
        job_server.ExternalJobServer(f"localhost:{free_port()}", 0.2).start()


def test_what_a_worker_calls_is_pickled_by_the_name_of_its_module():
    # by its content, a worker of another version could not even unpickle it
    assert pickler.loads(pickler.dumps(check_versions)) is check_versions
