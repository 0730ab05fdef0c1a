"""The undocumented parts of Beam that engines/beam.py uses; each test names what has changed."""

from __future__ import annotations

import inspect

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners import DirectRunner, create_runner
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from tfshards.prep.engines import beam


def test_the_local_runners_are_found_by_name():
    assert type(create_runner("FnApiRunner")) is FnApiRunner
    assert isinstance(create_runner("DirectRunner"), DirectRunner)
    with pytest.raises(ValueError, match="Unexpected pipeline runner: Flonk"):
        create_runner("Flonk")


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


def test_the_job_service_lists_its_options():
    described = inspect.getsource(portable_runner.JobServiceHandle.get_pipeline_options)
    assert "DescribePipelineOptions" in described
