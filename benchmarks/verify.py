"""Compare verify with sha256sum on the same shards, and builds with and without digests and companions.

    python benchmarks/verify.py --photos photos/ --copies 8 --rounds 7

Every contestant runs in its own process, in turns, page cache warm. tfshards cannot build without digests and
the files of indexes, labels and keys: a sitecustomize.py removes them, in the main process and in its
workers. The builds that it is compared with load one that removes nothing, or one that replaces SHA-256 by
BLAKE3 (pip install blake3).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import measure
from measure import MB, Measurement, ratios, spread

from prep import make_photos

LOADING = """
import os, sys
import tfshards.prep.writing.shard as shard
import tfshards.prep.records.shard_file as shard_file
"""
LEAVING_OUT = """
from tfshards.schemas import Shard

def append(self, frames, labels=(), keys=()):
    for buffer in frames.buffers:
        self.sink.write(buffer)
    self._num_bytes += sum(map(len, frames.buffers))
    self._lengths += frames.lengths

def describe(self, path):
    digest, count, num_bytes = "sha256:" + "0" * 64, len(self._lengths), sum(self._lengths)
    labels, keys = (digest if has else "" for has in (self.has_labels, self.has_keys))
    return Shard(path, count, self._num_bytes, num_bytes, digest, digest, "0" * 16, "", labels, keys), {}

shard_file.ShardFile.append = append
shard_file.ShardFile.describe = describe
shard.BuildFolder.marks_of = lambda folder, described: {}
"""
# Another hash function, whose digests have the same length.
WITH_BLAKE3 = """
import types, blake3

shard_file.hashlib = types.SimpleNamespace(sha256=blake3.blake3)
"""
BUILDS = {
    "build": LOADING,
    "build with BLAKE3": LOADING + WITH_BLAKE3,
    "build without digests and companions": LOADING + LEAVING_OUT,
}
CHECKS = ("sha256sum", "verify", "verify of one small shard", "verify --deep", "verify --decode")
PACKAGES = ("tfshards", "apache-beam", "numpy", "google-crc32c", "blake3")
ZEROS = "sha256:" + "0" * 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=Path, required=True, help="images in class folders, at any depth")
    parser.add_argument("--copies", type=int, default=8, help="copies of each photo (default: 8)")
    parser.add_argument("--rounds", type=int, default=7, help="measured runs per contestant (default: 7)")
    parser.add_argument("--build-rounds", type=int, default=7, help="measured runs per build (default: 7)")
    parser.add_argument("--no-decode", action="store_true", help="leave out verify --decode")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfshards-bench-") as folder:
        work = Path(folder).resolve()
        source = make_photos(options.photos, work / "photos", options.copies)
        sound = work / "sound" / "photos"
        measure.measure(command(source, sound), work)
        small = work / "small" / "photos"
        one = make_photos(options.photos, work / "one", 1)
        for path in sorted(path for path in one.rglob("*") if path.is_file())[1:]:
            path.unlink()
        measure.measure(command(one, small, shards=1), work)
        checks = [name for name in CHECKS if not (options.no_decode and name.endswith("decode"))]
        taken = measure.rounds(checks, options.rounds, lambda name: check(name, sound, small, work))
        taken |= measure.rounds([*BUILDS], options.build_rounds, lambda name: build(name, source, work))
        num_bytes = sum(path.stat().st_size for path in sound.glob("*/*.tfrecord-*"))
    flags = f" --build-rounds {options.build_rounds}{' --no-decode' if options.no_decode else ''}"
    rounds = f"{options.rounds} rounds in turns, of the builds {options.build_rounds}"
    size = f"{num_bytes / MB:,.0f} MB in 16 shards; {rounds}, page cache warm."
    line = f"python benchmarks/verify.py --photos PHOTOS --copies {options.copies} --rounds {options.rounds}"
    where = measure.machine(PACKAGES)
    print(f"\n{report(taken, num_bytes)}\n\n{size} {measure.HOW}\n\n{where}\n\n`{line}{flags}`")


def command(source: Path, out: Path, shards: int = 16) -> list[str]:
    """Return the command that builds ``source`` without decoding images."""
    cli = [sys.executable, "-m", "tfshards", "build", "images", str(source), str(out)]
    return [*cli, "--shards", str(shards), "--check", "none"]


def check(name: str, sound: Path, small: Path, work: Path) -> Measurement:
    """Run one contestant that verifies a dataset."""
    if name == "sha256sum":
        return measure.measure(["sha256sum", *map(str, sorted(sound.glob("*/*.tfrecord-*")))], work)
    verify = [sys.executable, "-m", "tfshards", "verify"]
    if name == "verify of one small shard":
        return measure.measure([*verify, str(small)], work)
    return measure.measure([*verify, str(sound), *name.split()[1:]], work)


def build(name: str, source: Path, work: Path) -> Measurement:
    """Run a build, with or without digests and companions.

    Raises:
        RuntimeError: the build has digests although it should not, or the other way round.
    """
    with tempfile.TemporaryDirectory(dir=work) as folder:
        out, site = Path(folder) / "photos", Path(folder) / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(BUILDS[name])
        os.environ["PYTHONPATH"] = str(site)
        try:
            taken = measure.measure(command(source, out), work)
        finally:
            del os.environ["PYTHONPATH"]
        if (ZEROS in (out / "dataset.json").read_text()) != ("without" in name):
            raise RuntimeError(f"{name}: the digests of the manifest do not fit this name")
        return taken


def report(taken: Mapping[str, Sequence[Measurement]], num_bytes: int) -> str:
    """Return the result as Markdown."""
    wall = {name: [result.wall for result in results] for name, results in taken.items()}
    cpu = {name: [result.cpu for result in results] for name, results in taken.items()}
    rows = [
        [
            name,
            spread(wall[name], 2),
            spread(cpu[name], 2),
            f"{num_bytes / MB / statistics.median(wall[name]):,.0f}" if "small" not in name else "",
            spread([result.rss / MB for result in results], 0),
        ]
        for name, results in taken.items()
    ]
    head = ("", "wall, s", "CPU, s", "MB/s", "peak RSS, MB")
    whole = ratios(wall["sha256sum"], wall["verify"])
    start = statistics.median(wall["verify of one small shard"])
    alone = ratios(wall["sha256sum"], [seconds - start for seconds in wall["verify"]])
    on_cpu = ratios(cpu["sha256sum"], cpu["verify"])
    bare, other = "build without digests and companions", "build with BLAKE3"
    more = [over - 1 for over in ratios(wall["build"], wall[bare])]
    on_cores = [over - 1 for over in ratios(cpu["build"], cpu[bare])]
    blake3 = [[over - 1 for over in ratios(taken[other], taken[bare])] for taken in (wall, cpu)]
    goal = measure.goal
    return "\n".join(
        [
            measure.table(head, rows),
            "",
            goal(
                f"speed of verify over sha256sum's ({spread(whole, 2)})", statistics.median(whole), 0.5, True
            ),
            f"- the same without the start of the interpreter and imports: {spread(alone, 2)}; "
            f"in CPU time, with them: {spread(on_cpu, 2)}",
            goal(
                f"wall that digests and companions add to a build ({spread(more, 2)})",
                statistics.median(more),
                0.1,
            ),
            f"- CPU time that they add: {spread(on_cores, 2)}",
            f"- with BLAKE3 instead of SHA-256 they add {spread(blake3[0], 2)} of wall, "
            f"{spread(blake3[1], 2)} of CPU",
        ]
    )


if __name__ == "__main__":
    main()
