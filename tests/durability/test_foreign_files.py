"""Pipes, devices and huge files in place of those of a dataset: an error at once, in little memory."""

import gzip
import os
import resource
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest

from tfshards.prep import Arrays, Options, build, verify
from tfshards.prep.records import reader
from tfshards.prep.records.frames import masked_crc32c
from tfshards.schemas import InputError, read_manifest

SECONDS, MOST_BYTES = 60, 3 << 30
OTHERS = {
    "a pipe": lambda path: os.mkfifo(path),
    "a link to zeros": lambda path: os.symlink("/dev/zero", path),
    "a hole": lambda path: path.touch() or os.truncate(path, 5 << 30),
}


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command with little memory and time; neither may run out."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))

    command = [sys.executable, "-m", "tfshards", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, preexec_fn=limit)
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended


@pytest.fixture
def data(tmp_path):
    """A dataset, ``data``, of the array ``x.npy``."""
    np.save(tmp_path / "x.npy", np.arange(9))
    source = Arrays({"x": tmp_path / "x.npy"})
    build(source, tmp_path / "data", shards=1, log=lambda line: None)
    return tmp_path / "data"


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize(
    "verb", ["info", "verify", "show", "diff", "generations", "prune", "build arrays", "append", "reshard"]
)
def test_the_manifest_is_not_read(make, verb, data):
    (data / "dataset.json").unlink()
    make(data / "dataset.json")
    others = {"diff": [data], "build arrays": ["--shards", 1], "append": [], "reshard": [f"{data}2"]}
    sources = [data.parent / "x.npy"] if verb in ("build arrays", "append") else []
    ended = run(*verb.split(), *sources, data, *others.get(verb, []))
    assert ended.returncode == 1
    assert "dataset.json" in ended.stderr
    allowed = ("is not a regular file", "at most 268435456 are read", "is a symbolic link")
    assert any(text in ended.stderr for text in allowed), ended.stderr


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS.keys())
def test_loading_does_not_read_the_manifest(make, data):
    (data / "dataset.json").unlink()
    make(data / "dataset.json")
    with pytest.raises(InputError, match=r"is not a regular file|at most 268435456 are read"):
        read_manifest(data)


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS.keys())
def test_no_other_file_of_a_dataset_is_read(make, data, tmp_path):
    """Each verb on datasets that have one such file: errors, or what does not need the file."""
    shard = read_manifest(data).shards[0].path
    for path in (shard, f"index/{shard}.idx", "dataset_info.json", *(p.name for p in data.glob("inputs-*"))):
        copy = tmp_path / "copy" / "data"
        shutil.copytree(data, copy)
        (copy / path).unlink()
        make(copy / path)
        is_needed, is_read = not path.startswith("inputs-"), path.startswith((shard, "index/"))
        assert run("verify", copy, "--deep").returncode == is_needed, path
        source = f"x={tmp_path / 'x.npy'}"
        built = run("build", "arrays", source, copy, "--shards", 1, "--checksum")
        assert built.returncode == is_read, built.stderr
        assert run("show", copy).returncode == (path == shard)
        assert run("append", source, copy).returncode in (0, 1)
        assert run("export", copy, tmp_path / "copy" / "out", "--to", "webdataset").returncode in (0, 1)
        shutil.rmtree(tmp_path / "copy")


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_pipe_is_no_shard(compression, tmp_path):
    os.mkfifo(tmp_path / "shard")
    with pytest.raises(OSError, match="is not a regular file"):
        reader.open_shard(tmp_path / "shard", compression)


def test_a_small_compressed_file_of_a_huge_record_is_not_adopted(tmp_path):
    length = 3 * 10**9
    header = struct.pack("<Q", length)
    path = tmp_path / "data" / "x-train.tfrecord-00000-of-00001"
    path.parent.mkdir()
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header + struct.pack("<I", masked_crc32c(header)))
        # ends as if it had all of it
        for _ in range(40):
            file.write(bytes(10**7))
    ended = run("adopt", tmp_path / "data")
    assert ended.returncode == 1
    assert f"record 0 at byte 0: states {length} bytes of data" in ended.stderr


def test_long_records_that_a_manifest_knows_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "_MOST_UNKNOWN", 1000)
    monkeypatch.setattr(reader, "_MOST_RATIO", 1)
    # zeros, which are much smaller when compressed
    np.save(tmp_path / "x.npy", np.zeros((2, 10_000), np.uint8))
    options, out = Options(compression="gzip"), tmp_path / "data"
    build(Arrays({"x": tmp_path / "x.npy"}), out, shards=1, options=options, log=lambda line: None)
    assert verify(out, deep=True)
    (shard,) = read_manifest(out).shards
    with pytest.raises(reader.RecordError, match="; at most 1000 are read"):
        list(reader.read_records(out / shard.path, "gzip"))
