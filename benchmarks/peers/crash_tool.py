"""Write a dataset with one tool, in its own environment, or read what a power cut has left of it.

Usage: python crash_tool.py write TOOL SOURCE OUT [--overwrite]
       python crash_tool.py read TOOL

Reading expects a folder on each line of standard input, and prints what is in it as JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from peers import writers

LIMIT = 60


def overwrite_tfshards(source: Path, out: Path) -> None:
    from tfshards import prep

    prep.build(prep.ImageFolder(source), out, shards=writers.SHARDS, overwrite=True)


def overwrite_tfds(source: Path, out: Path) -> None:
    """As ``tfds build --overwrite``: remove the dataset, and prepare it."""
    shutil.rmtree(out / "folder" / "1.0.0")
    writers._tfds_convert(source, out)


def overwrite_litdata(source: Path, out: Path) -> None:
    import litdata

    keys = writers.inputs(source)
    litdata.optimize(
        writers._Example(source),
        keys,
        output_dir=str(out),
        chunk_size=len(keys) // writers.SHARDS,
        num_workers=2,
        mode="overwrite",
        verbose=False,
        start_method="fork",
    )


def overwrite_mds(source: Path, out: Path) -> None:
    import streaming

    columns = {"key": "str", "image": "bytes"}
    keys = writers.inputs(source)
    limit = sum((source / key).stat().st_size for key in keys) // writers.SHARDS
    with streaming.MDSWriter(out=str(out), columns=columns, size_limit=limit, exist_ok=True) as writer:
        for key in keys:
            writer.write({"key": key, "image": (source / key).read_bytes()})


OVERWRITE = {
    "tfshards": overwrite_tfshards,
    "tfds": overwrite_tfds,
    "litdata": overwrite_litdata,
    "mds": overwrite_mds,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("write", "read"))
    parser.add_argument("tool", choices=OVERWRITE)
    parser.add_argument("paths", type=Path, nargs="*", help="of write: source and output")
    parser.add_argument("--overwrite", action="store_true", help="replace the dataset in the output")
    options = parser.parse_args()
    writer = writers.WRITERS[options.tool]
    if options.action == "write":
        (OVERWRITE[options.tool] if options.overwrite else writer.convert)(*options.paths)
        return
    writer.load()
    answers, sys.stdout = sys.stdout, sys.stderr
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    for line in sys.stdin:
        signal.alarm(LIMIT)
        try:
            records = [
                [key, hashlib.sha256(image).hexdigest()] for key, image in writer.read(Path(line[:-1]))
            ]
            found: dict[str, object] = {"records": sorted(records)}
        except Exception as error:  # whatever a tool raises is its way to say that it cannot read
            found = {"error": f"{type(error).__name__}: {error}"[:200]}
        signal.alarm(0)
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
