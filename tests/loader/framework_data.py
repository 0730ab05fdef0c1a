"""A small dataset for the tests of frameworks, and the programs that they start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

from tfshards.schemas import Feature, Schema

SCHEMA = Schema(
    (
        Feature("number", "int", "int64"),
        Feature("pixels", "raw", "uint8", (4, 3)),
        Feature("label", "label", "int64"),
        Feature("key", "bytes", "bytes"),
        Feature("ids", "int", "int32", (None,)),
        Feature("half", "raw", "bfloat16", (2,)),
    ),
    ("ant", "bee", "cat"),
)
SIZES = [17, 0, 40, 6]
COUNT = sum(SIZES)


def example(number):
    return {
        "number": number,
        "pixels": np.full((4, 3), number, np.uint8),
        "label": number % 3,
        "key": b"%d" % number,
        "ids": np.arange(number % 3),
        "half": np.full(2, number, ml_dtypes.bfloat16),
    }


def write_data(write_dataset, folder):
    ends = np.cumsum(SIZES).tolist()
    shards = [[*map(example, range(end - size, end))] for size, end in zip(SIZES, ends, strict=True)]
    return str(write_dataset(folder, SCHEMA, {"train": shards}))


def run_together(code, *arguments, count=1, **variables):
    """Return what processes print that run a program at the same time, each with its number as the last."""
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    started = [
        subprocess.Popen(
            [*command, str(number)],
            env=environment,
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    try:
        printed = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * count, printed
    return [out for out, _ in printed]
