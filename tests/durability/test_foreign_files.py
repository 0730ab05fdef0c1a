"""Files that somebody else may have written: pipes, devices, holes, and small files that unpack to gigabytes.

Each command runs in a process of its own with little memory, and must end with a message within a minute.
"""

import gzip
import hashlib
import json
import os
import shutil
import struct
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.format_reader import companion, masked_crc, with_digest
from tests.tables import mostly_nightly
from tfshards.prep import ImageFolder, Options, adopt, build
from tfshards.prep.records.frames import RecordError, frame, read_parts
from tfshards.schemas import read_manifest
from tfshards.schemas.companions import read_index
from tfshards.schemas.index import RecordIndex
from tfshards.schemas.storage import any_path
from tfshards.schemas.storage.stored import METADATA

HOLE, RECORD, MEMORY = 5_000_000_000, 3_000_000_000, 1_500_000_000
IRREGULAR = "is not a regular file"
KINDS = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "hole": lambda path: (path.touch(), os.truncate(path, HOLE)),
}
LIMITED = f"""
import resource, sys
lines = open("/proc/self/status").read().split("\\n")
used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + {MEMORY},) * 2)
"""
COMMAND = f"{LIMITED}\nimport tfshards\ntfshards._command()"
LOAD = f"""{LIMITED}
from tfshards import loader
try:
    next(iter(loader.load("data", "train", batch_size=2, cache=dict(enumerate(sys.argv)).get(1))))
except Exception as error:
    sys.exit(f"{{type(error).__name__}}: {{error}}")
"""
MANIFEST_COMMANDS = (
    "info data",
    "verify data",
    "load data",
    "generations data",
    "build images photos data --checksum",
    "append photos data",
    "prune data",
)
TOO_LARGE = f"has {HOLE} bytes; "
FAULTS = {"pipe": IRREGULAR, "device": IRREGULAR, "hole": TOO_LARGE}
NO_FILE = {"pipe": "is not a file", "device": "is not a file"}
CHECKSUM = "build images photos data --shards 2 --max-rejected 50% --checksum"
# What is replaced, the command, and its status and a text in its output: for each kind, or for all.
VIEW, NO_NPY, NO_ZIP = "data/FOLDER/dataset_info.json", "is not an .npy file", "is not a zip file"
BINARY = "is UTF-16, UTF-32 or binary"
INDEX = "found/ADOPTED/index/found-train.tfrecord-00001-of-00002.idx"
CASES = {
    # it is written again
    "a view": (VIEW, CHECKSUM, 0, "the content is the same"),
    "a view, verified": (VIEW, "verify data", 1, {**FAULTS, "hole": "its bytes have changed"}),
    "rejects": ("data/FOLDER/rejected.jsonl", "reshard data other --shards 1", 1, FAULTS),
    "the record of a build": ("data/FOLDER/build.json", "prune data", 0, ""),
    "a shard": ("data/SHARD", "show data", 1, {**FAULTS, "hole": "the checksum of the record's length"}),
    "keys": ("keys", "remove data --keys keys", 1, FAULTS),
    "new labels": ("new.csv", "relabel data --labels new.csv", 1, FAULTS),
    "class names": ("names", "build images photos other --class-names names", 1, FAULTS),
    "options": ("options", "build images photos other --config options", 2, FAULTS),
    "annotations": ("coco.json", "build coco coco.json other", 1, FAULTS),
    "an array": ("x.npy", "build arrays x=x.npy other", 1, {**FAULTS, "hole": NO_NPY}),
    "arrays": ("x.npz", "build arrays x.npz other", 1, {**FAULTS, "hole": NO_ZIP}),
    "a table": ("x.csv", "build table x.csv other", 1, {**NO_FILE, "hole": BINARY}),
    "a table of JSON": ("x.jsonl", "build table x.jsonl other", 1, {**NO_FILE, "hole": BINARY}),
    # it is made again
    "an index of an adopted file": (INDEX, "adopt found", 0, "is up to date"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder with a source, datasets, and TFRecord files."""
    folder = tmp_path_factory.mktemp("sound")
    for name, number in (("a", 0), ("a", 1), ("b", 2)):
        (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3), (number, 0, 0)).save(folder / "photos" / name / f"{number}.png")
    (folder / "photos" / "b" / "3.jpg").write_bytes(b"\xff\xd8\xff\xe0cut")
    options = Options(max_rejected=0.5)
    manifest = build(ImageFolder(folder / "photos"), folder / "data", shards=2, options=options)
    (folder / "found").mkdir()
    for number, shard in enumerate(manifest.shards):
        shutil.copy(folder / "data" / shard.path, folder / "found" / f"x.tfrecord-{number:05d}-of-00002")
    adopt(folder / "found")
    return folder


@pytest.fixture
def folder(sound, tmp_path):
    shutil.copytree(sound, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def run(programs):
    def run(command, folder):
        words = command.split()
        code = ["-c", LOAD, *words[2:]] if words[0] == "load" else ["-c", COMMAND, *words]
        ended = programs.run(code, cwd=folder, timeout=60)
        output = ended.stdout + ended.stderr
        assert "MemoryError" not in output
        return ended.returncode, output

    return run


def replaced(path, kind):
    path.unlink(missing_ok=True)
    KINDS[kind](path)


@pytest.mark.processes
@pytest.mark.parametrize("command", mostly_nightly(MANIFEST_COMMANDS, MANIFEST_COMMANDS[::3]))
@pytest.mark.parametrize("kind", mostly_nightly(KINDS, ["pipe"]))
def test_a_manifest_that_is_not_a_small_file_is_refused_by_name(kind, command, folder, run):
    replaced(folder / "data" / "dataset.json", kind)
    status, output = run(command, folder)
    assert (status, "data/dataset.json" in output) == (1, True)
    fault = TOO_LARGE if kind == "hole" else IRREGULAR
    assert fault in output or (kind == "device" and "is a symbolic link" in output)


@pytest.mark.parametrize("case", mostly_nightly(CASES, [*CASES][::2]))
@pytest.mark.parametrize("kind", mostly_nightly(KINDS, ["pipe"]))
def test_no_file_that_others_may_write_hangs_a_command_or_fills_the_memory(kind, case, folder, run):
    path, command, status, text = CASES[case]
    manifest = read_manifest(folder / "data")
    path = path.replace("FOLDER", manifest.folder).replace("SHARD", manifest.shards[0].path)
    path = path.replace("ADOPTED", read_manifest(folder / "found").folder)
    replaced(folder / path, kind)
    ended, output = run(command, folder)
    assert ended == (status if isinstance(status, int) else dict(zip(KINDS, status, strict=True))[kind]), (
        output
    )
    assert (text if isinstance(text, str) else text.get(kind, "")) in output
    # the file is named, unless the command does without it
    assert not ended or path.removeprefix("data/") in output


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_is_not_a_small_file_is_skipped_or_rejected(kind, folder, run):
    KINDS[kind](folder / "photos" / "a" / "x.jpg")
    status, output = run("build images photos other --shards 1 --max-rejected 50%", folder)
    assert status == 0, output
    found = read_manifest(folder / "other").totals
    assert (found.accepted, found.rejected) == (3, 2 if kind == "hole" else 1)
    assert ("too large" if kind == "hole" else "special file") in output


def bomb(path, stated=RECORD, held=RECORD):
    """Write a shard of one record of zeros, compressed with gzip: 1 MB for 1 GB of them."""
    header = struct.pack("<Q", stated)
    head = gzip.compress(header + struct.pack("<I", masked_crc(header)), mtime=0)
    # what is compressed in parts is unpacked as one
    zeros = gzip.compress(bytes(10_000_000), mtime=0)
    path.write_bytes(head + zeros * (held // 10_000_000) + gzip.compress(bytes(4), mtime=0))


@pytest.fixture(scope="module")
def hostile(sound, tmp_path_factory):
    """A folder with a dataset whose manifest and index agree with a shard of one record that is too large."""
    folder = tmp_path_factory.mktemp("hostile")
    images, options = (
        ImageFolder(sound / "photos", include=["b/2.png"], as_is=True),
        Options(compression="gzip"),
    )
    manifest = build(images, folder / "data", shards=1, options=options)
    path = folder / "data" / manifest.shards[0].path
    index = f"0 {RECORD + 16}\n".encode()
    bomb(path)
    (folder / "data" / companion(manifest.shards[0].path, "idx")).write_bytes(index)
    document = json.loads((folder / "data" / "dataset.json").read_bytes())
    document["splits"]["train"]["shards"][0].update(
        num_bytes=path.stat().st_size,
        record_bytes=RECORD + 16,
        digest=f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
        index_digest=f"sha256:{hashlib.sha256(index).hexdigest()}",
        last_bytes=path.read_bytes()[-8:].hex(),
    )
    (folder / "data" / "dataset.json").write_bytes(with_digest(json.dumps(document).encode()))
    return folder


def test_a_compressed_record_that_is_too_large_is_not_unpacked_by_adopt(tmp_path, run):
    (tmp_path / "found").mkdir()
    bomb(tmp_path / "found" / "x.tfrecord.gz")
    assert (tmp_path / "found" / "x.tfrecord.gz").stat().st_size < RECORD // 1000
    status, output = run("adopt found", tmp_path)
    assert status == 1
    assert f"x.tfrecord.gz: record 0 at byte 0: states {RECORD} bytes of data, more than a record" in output


@pytest.mark.parametrize(
    "command",
    [
        "show data",
        "load data disk:near",
        "verify data --deep",
        "export data parts --to parquet",
        "reshard data other --compression none",
    ],
)
def test_a_compressed_record_that_is_too_large_is_not_unpacked(command, hostile, run):
    status, output = run(command, hostile)
    assert (status, "more than a record can have" in output) == (1, True), output


def test_an_index_cannot_demand_a_record_that_is_too_large(tmp_path):
    path = any_path(tmp_path / "x.tfrecord")
    path.write_bytes(b"".join(frame(b"data")))
    with pytest.raises(RecordError, match=f"states {RECORD - 16} bytes of data, more than a record can have"):
        next(read_parts(path, "none", RecordIndex(np.array([RECORD])), np.array([0])))


def test_an_index_has_a_limit_whatever_the_manifest_lists(folder):
    shard = replace(read_manifest(folder / "data").shards[0], num_examples=10**12)
    replaced(folder / "data" / companion(shard.path, "idx"), "hole")
    index, problems = read_index(any_path(folder / "data"), shard)
    assert index is None
    assert f"has {HOLE} bytes; it has at most " in str(problems[0])


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_device_is_refused(kind, tmp_path):
    KINDS[kind](tmp_path / "x")
    for read in (
        lambda path: path.read_whole(METADATA),
        lambda path: path.read_range(0, 1),
        lambda path: path.digest(),
    ):
        with pytest.raises(OSError, match=IRREGULAR):
            read(any_path(tmp_path / "x"))
