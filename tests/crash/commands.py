"""The commands that change disks or buckets: one table for every test that ends them too early.

A command line is text in which ``IN`` is the folder of ``write_inputs``, ``OUT`` the folder or URL that holds
the datasets, and ``FIRST`` the folder of the first build in ``OUT/data``.
"""

import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.pictures import image_file
from tests.surface import command as cli

Files = Mapping[str, bytes]
# with one time for all files, equal files are equal inputs
STAMP = 1_600_000_000
POINTER = "dataset.json"


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that writes.

    Attributes:
        line: the command line; running it again resumes it, or finds it done.
        before: command lines that make the files in which it begins.
        change: returns the files in ``OUT`` in which it begins, given those after ``before``.
        out: the folder in ``OUT`` that it writes.
        then: another command line, which must not be misled by what the first one left.
        makes: ``"dataset"``; ``"files"``, if it writes no pointer; ``"repair"``, if what it begins with is
            damaged.
        prunes: whether it removes files of earlier generations.
        is_remote: whether it also writes into buckets.
    """

    line: str
    before: tuple[str, ...] = ()
    change: Callable[[Files], Files] = dict
    out: str = "data"
    then: str = ""
    makes: str = "dataset"
    prunes: bool = False
    is_remote: bool = True


def _damaged(files: Files) -> Files:
    """Replace a shard, and the index of another one."""
    shards = [shard["path"] for shard in json.loads(files[f"data/{POINTER}"])["splits"]["train"]["shards"]]
    index = next(path for path in files if path.endswith(f"{Path(shards[1]).name}.idx"))
    return {**files, f"data/{shards[0]}": b"damaged", index: b"damaged"}


def _damaged_index(files: Files) -> Files:
    """Replace the index of a shard, and the file of class names."""
    shards = [shard["path"] for shard in json.loads(files[f"data/{POINTER}"])["splits"]["train"]["shards"]]
    index = next(path for path in files if path.endswith(f"{Path(shards[1]).name}.idx"))
    names = next(path for path in files if path.endswith("/labels.txt"))
    return {**files, index: b"damaged", names: b"damaged"}


def _only_shards(files: Files) -> Files:
    """Keep the TFRecord files of a dataset, without what tfshards writes beside them."""
    shards = [data for path, data in sorted(files.items()) if ".tfrecord-" in Path(path).name[:-4]]
    shards = [data for data in shards if data.count(b"key") > 1]
    return {f"data/x.tfrecord-{n:05d}-of-{len(shards):05d}": data for n, data in enumerate(shards)}


def _with_staged(files: Files) -> Files:
    """Add staged files of a killed command, whose record is neither the first nor the last name."""
    folder = ".staged-01234567"
    record = json.dumps({"format": "tfshards build, version 1", "folder": folder}).encode("ascii")
    staged = {"build.json": record, "a": b"1", "c/d": b"2", "e": b"3"}
    return {**_only_shards(files), **{f"data/{folder}/{name}": data for name, data in staged.items()}}


def _adopted(files: Files) -> Files:
    """Keep the TFRecord files of a dataset, and adopt them."""
    with tempfile.TemporaryDirectory() as folder:
        for path, data in _only_shards(files).items():
            _write(Path(folder, path), data)
        status, printed = run(["adopt", str(Path(folder, "data")), "--label", "y"])
        assert status == 0, printed
        found = [path for path in Path(folder).rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


_IMAGES = "build images IN/few/photos OUT/data --shards 2 --max-rejected 50%"
_ARRAYS = "build arrays IN/few/x.npz OUT/data --roles y=label --shards 2"
_OTHERS = "build images IN/added/photos OUT/more --shards 1"
_CHANGED = "build images IN/changed/photos OUT/data --shards 2 --max-rejected 50% --overwrite"
_AGAIN = "--overwrite --seed"

COMMANDS: dict[str, Command] = {
    "build images": Command(line=_IMAGES, then=_CHANGED),
    "build arrays": Command(
        line="build arrays IN/few/x.npz OUT/new/data --roles y=label --shards 2 --compression gzip "
        "--splits train=0.7 --splits test=0.3",
        out="new/data",
    ),
    "build table": Command(
        line="build table IN/few/table.csv OUT/data --shards 2 --max-rejected 50%",
        then=f"{_ARRAYS} --overwrite",
    ),
    "build embedded images": Command(
        line="build table IN/few/embedded.parquet OUT/data --shards 2 --duplicates drop"
    ),
    "build other options": Command(
        line=f"{_IMAGES} {_AGAIN} 2",
        before=(_IMAGES, f"{_IMAGES} {_AGAIN} 1"),
        then=f"{_IMAGES} {_AGAIN} 3",
    ),
    "build other inputs": Command(line=_CHANGED, before=(_IMAGES,), then=f"{_IMAGES} --overwrite"),
    # other times, the same content
    "build touched inputs": Command(
        line="build images IN/touched/photos OUT/data --shards 2 --max-rejected 50%", before=(_IMAGES,)
    ),
    "build damaged again": Command(
        line=f"{_IMAGES} --overwrite", before=(_IMAGES,), change=_damaged, makes="repair"
    ),
    "append": Command(
        line="append IN/more/photos OUT/data --max-rejected 50%",
        before=(_IMAGES,),
        then="remove OUT/data --keys IN/keys.txt",
    ),
    "remove": Command(
        line="remove OUT/data --keys IN/keys.txt",
        before=(_IMAGES,),
        then="remove OUT/data --keys IN/other-keys.txt",
    ),
    "relabel": Command(
        line="relabel OUT/data --labels IN/labels.csv --new-classes",
        before=(_IMAGES,),
        then="remove OUT/data --keys IN/keys.txt",
    ),
    "reshard": Command(
        line="reshard OUT/data OUT/data --shards 3 --overwrite",
        before=(_ARRAYS,),
        then="reshard OUT/data OUT/data --shards 1 --overwrite",
    ),
    "merge": Command(
        line="merge --as-splits train=OUT/data test=OUT/more OUT/both --shards 2",
        before=(_IMAGES, _OTHERS),
        out="both",
        then="reshard OUT/data OUT/both --shards 3 --overwrite",
    ),
    "restore": Command(
        line="restore OUT/data FIRST",
        before=(_ARRAYS, f"{_ARRAYS} {_AGAIN} 1", f"{_IMAGES} {_AGAIN} 1"),
        then=f"{_ARRAYS} {_AGAIN} 2",
    ),
    "prune": Command(
        line="prune OUT/data",
        before=(_ARRAYS, f"{_ARRAYS} {_AGAIN} 1", f"{_IMAGES} {_AGAIN} 1"),
        then=f"{_ARRAYS} {_AGAIN} 1",
        prunes=True,
    ),
    "repair": Command(
        line="verify OUT/data --repair",
        before=(_IMAGES,),
        change=_damaged_index,
        makes="repair",
    ),
    **{
        f"export to {name}": Command(
            line=f"export OUT/data OUT/exported --to {name.lower()}",
            before=(_IMAGES,),
            out="exported",
            makes="files",
            is_remote=False,
        )
        for name in ("WebDataset", "Parquet")
    },
    "adopt": Command(line="adopt OUT/data", before=(_IMAGES,), change=_with_staged, is_remote=False),
    "adopt with other labels": Command(
        line="adopt OUT/data --label x --overwrite",
        before=(_ARRAYS,),
        change=_adopted,
        is_remote=False,
    ),
    "adopt without labels": Command(
        line="adopt OUT/data --overwrite",
        before=(_ARRAYS,),
        change=_adopted,
        is_remote=False,
    ),
}


def write_inputs(folder: Path) -> Path:
    """Write the inputs of all commands; the same files have the same times. Returns the folder."""
    for name, count in (("few", 8), ("touched", 8), ("more", 11), ("changed", 8)):
        for number in range(count):
            # one file that has other pixels, in as many bytes, and another time
            is_changed = (name, number) == ("changed", 4)
            picture = Image.new("RGB", (4, 4), (number, 0, 255 * is_changed))
            file = image_file(picture, "BMP" if number == 4 else "PNG")
            stamp = STAMP + is_changed + (name == "touched")
            _write(folder / name / "photos" / "ab"[number % 2] / _photo(number), file, stamp)
        _write(folder / name / "photos" / "a" / "bad.png", b"no image")
        with io.BytesIO() as file:
            np.savez(file, x=np.arange(count), y=np.arange(count) % 3)
            _write(folder / name / "x.npz", file.getvalue())
    for number in range(20, 24):
        file = image_file(Image.new("RGB", (4, 4), (number, 0, 0)))
        _write(folder / "added" / "photos" / "ab"[number % 2] / _photo(number), file)
    rows = [f"photos/{'ab'[number % 2]}/{_photo(number)},{number % 3}" for number in range(8)]
    _write(folder / "few" / "table.csv", "\n".join(["image,label", *rows, "photos/a/bad.png,0", ""]).encode())
    # the last two are the first two again
    files = [image_file(Image.new("RGB", (4, 4), (number % 6, 9, 0))) for number in range(8)]
    pq.write_table(pa.table({"image": files, "label": ["c", "d"] * 4}), folder / "few" / "embedded.parquet")
    os.utime(folder / "few" / "embedded.parquet", (STAMP, STAMP))
    _write(folder / "keys.txt", b"b/1.png\na/2.png\na/bad.png\n")
    _write(folder / "other-keys.txt", b"a/6.png\n")
    _write(folder / "labels.csv", b"key,label\na/6.png,c\nb/3.png,a\n")
    return folder


def _photo(number: int) -> str:
    return f"{number}.bmp" if number == 4 else f"{number}.png"


def _write(path: Path, data: bytes, stamp: int = STAMP) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (stamp, stamp))


def words(line: str, inputs: Path, out: str | Path, first: str = "") -> list[str]:
    """Return the arguments of a command line."""
    names = {"IN": str(inputs), "OUT": str(out), "FIRST": first}
    found = [re.sub(r"\b[A-Z]+\b", lambda name: names[name[0]], word) for word in line.split()]
    # one process, which writes the files one after another
    verb = found[0]
    return [*found, "--jobs", "1"] if verb not in ("restore", "prune") else found


def run(arguments: list[str]) -> tuple[int, str]:
    """Run a command in this process; return its exit status, and what it printed."""
    with io.StringIO() as printed:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            status = cli.main(arguments)
        return status, printed.getvalue()
