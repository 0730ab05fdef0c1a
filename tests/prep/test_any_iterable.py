"""``prep.Examples``: datasets from iterables of other packages, and what is done with them later."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tests.pictures import image_file
from tfshards import prep
from tfshards.prep.building import write as writing
from tfshards.schemas import InputError, read_manifest

Values = dict[str, object]

COUNT = 9


def encoded(number: int) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (5 + number % 3, 9, 3), dtype=np.uint8)
    return image_file(pixels)


def example(number: int) -> Values:
    return {"image": encoded(number), "label": ("cat", "dog")[number % 2], "n": number, "x": number / 4}


@pytest.fixture
def build(tmp_path, quiet_build):
    """Build a dataset from examples in the folder ``name``, and return the folder."""

    def run(source: prep.Examples, name: str = "out", **given: object) -> Path:
        quiet_build(source, tmp_path / name, **given)
        return tmp_path / name

    return run


def test_a_million_examples_would_fit_since_values_wait_on_disk(tmp_path):
    alive, most = 0, 0

    class Counted(dict):
        def __init__(self, number: int) -> None:
            nonlocal alive, most
            super().__init__(n=number)
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    (tmp_path / "staged").mkdir()
    reader = prep.Examples(map(Counted, range(2_000))).stage(tmp_path / "staged")
    assert reader.listing().num_examples == 2_000
    assert most < 10


@pytest.mark.parametrize("moment", ["reading", "writing"])
def test_a_build_that_ended_reads_the_examples_again_and_writes_the_same_bytes(
    moment, build, tmp_path, contents, log, monkeypatch
):
    def end() -> None:
        raise KeyboardInterrupt

    def examples(end=lambda: None):
        for number in range(300):
            if number == 200:
                end()
            yield {"x": bytes(999) + bytes([number % 256]), "label": number % 3}

    given = {"shards": 4, "seed": 3}
    with prep.limited_jobs(1):
        build(prep.Examples(examples), "whole/out", **given)
        with monkeypatch.context() as patch:
            ended = prep.Examples(partial(examples, *[end] * (moment == "reading")))
            if moment == "writing":
                write = writing.write_shard
                patch.setattr(writing, "write_shard", lambda *task: (write(*task), end()))
            with pytest.raises(KeyboardInterrupt):
                build(ended, **given)
        build(prep.Examples(examples), **given)
    assert any("resuming the build" in line for line in log) == (moment == "writing")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole" / "out")


def test_a_build_and_append_take_the_examples_again(build, tmp_path):
    given = [*map(example, range(COUNT))]
    out = build(prep.Examples(given), shards=3)
    shard = out / read_manifest(out).shards[1].path
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    assert not prep.verify(out, repair=True)
    build(prep.Examples(given), shards=3)
    assert shard.read_bytes() == whole
    with raises(InputError, "was made by examples"):
        prep.append(str(tmp_path), out)
    for others in ((5, 6), range(5, 5 + COUNT)):
        with pytest.raises(InputError, match="rows are identified by their numbers"):
            prep.append(prep.Examples(map(example, others)), out)
    grown = prep.append(prep.Examples(iter([*given, example(20)])), out)
    assert grown.num_examples == COUNT + 1
