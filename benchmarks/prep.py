"""Compare building shards from photos: tfshards, TFDS in process, TFDS on Beam, and a plain copy loop.

    python benchmarks/prep.py --photos photos/ --copies 8 --rounds 5 --memory-twice

Every contestant runs in its own process, measured from the start of the interpreter to its end, in turns with
the others on the same files, which are in the page cache. The photos are copied under different names, so
that 3,000 of them make a dataset of 24,000.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import measure
from measure import MB, Measurement, ratios, spread

CONTESTANTS = Path(__file__).resolve().parent / "contestants.py"
SUFFIXES = (".jpg", ".jpeg", ".png")
NAMES = {
    "tfshards": "tfshards",
    "tfds": "TFDS, in process",
    "tfds-beam": "TFDS on Beam (local runner)",
    "copy": "read and append, no format",
}
PACKAGES = ("tfshards", "apache-beam", "tensorflow-datasets", "tensorflow", "numpy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=Path, required=True, help="images in class folders, at any depth")
    parser.add_argument("--copies", type=int, default=8, help="copies of each photo (default: 8)")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs per contestant (default: 5)")
    parser.add_argument(
        "--shards", type=int, default=16, help="shards that each contestant writes (default: 16)"
    )
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, default=list(NAMES), help="contestants (default: all)"
    )
    parser.add_argument("--memory-twice", action="store_true", help="also run tfshards on twice the files")
    parser.add_argument("--no-pss", action="store_true", help="leave out the runs that measure PSS")
    parser.add_argument("--work", type=Path, help="folder of the files (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work, prefix="tfshards-bench-") as work:
        compare(Path(work).resolve(), options)


def compare(work: Path, options: argparse.Namespace) -> None:
    """Run all contestants in turns and print the table."""
    source = make_photos(options.photos, work / "photos", options.copies)
    number, size = _count(source), _size(source)
    print(f"{number:,} photos, {size / MB:,.0f} MB", flush=True)
    taken = measure.rounds(
        options.only, options.rounds, lambda name: run(name, source, work, options.shards, size)
    )
    pss: dict[str, int] = {}
    if not options.no_pss:
        pss = {
            name: run(name, source, work, options.shards, size, with_pss=True).pss for name in options.only
        }
    twice: list[Measurement] = []
    if options.memory_twice and "tfshards" in options.only:
        double = make_photos(options.photos, work / "photos-twice", 2 * options.copies)
        of_double = measure.rounds(
            ["tfshards"],
            options.rounds,
            lambda name: run(name, double, work, options.shards, _size(double)),
        )
        twice = of_double["tfshards"]
    print(f"\n{report(taken, pss, twice, number, size, options)}")


def make_photos(photos: Path, target: Path, copies: int) -> Path:
    """Copy the photos into ``target``, one folder per class, ``copies`` times under different names."""
    found = sorted(path for path in photos.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not found:
        raise SystemExit(f"--photos {photos}: no {', '.join(SUFFIXES)} in it")
    for path in found:
        folder = target / ("-".join(path.parent.relative_to(photos).parts) or "all")
        folder.mkdir(parents=True, exist_ok=True)
        for copy in range(copies):
            shutil.copyfile(path, folder / f"{path.stem}-{copy}{path.suffix}")
    return target


def run(name: str, source: Path, work: Path, shards: int, size: int, with_pss: bool = False) -> Measurement:
    """Run one contestant on files that are in the page cache, and check that it wrote all of them."""
    for path in _files(source):
        path.read_bytes()
    # the files of the previous run must not be written to the disk during this one
    os.sync()
    out = work / "out" / name
    shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(exist_ok=True)
    result = measure.measure(_command(name, source, out, shards), work, with_pss)
    records = [path for path in _files(out) if ".tfrecord" in path.name and path.parent.name != "index"]
    written = sum(path.stat().st_size for path in records)
    if len(records) != shards or written < size:
        raise SystemExit(f"{name} wrote {len(records)} files of {written} bytes from {size} bytes")
    shutil.rmtree(out)
    return result


def _command(name: str, source: Path, out: Path, shards: int) -> list[str]:
    if name == "tfshards":
        build = [sys.executable, "-m", "tfshards", "build", "images", str(source), str(out)]
        return [*build, "--shards", str(shards)]
    return [sys.executable, str(CONTESTANTS), name, str(source), str(out), str(shards)]


def report(
    taken: Mapping[str, Sequence[Measurement]],
    pss: Mapping[str, int],
    twice: Sequence[Measurement],
    number: int,
    size: int,
    options: argparse.Namespace,
) -> str:
    """Return the result as Markdown."""
    wall = {name: [result.wall for result in results] for name, results in taken.items()}
    cpu = {name: [result.cpu for result in results] for name, results in taken.items()}
    rss = {name: [result.rss / MB for result in results] for name, results in taken.items()}
    rows = [
        [
            NAMES[name],
            spread(wall[name]),
            spread(cpu[name]),
            f"{number / statistics.median(wall[name]):,.0f}",
            f"{size / MB / statistics.median(wall[name]):,.0f}",
            spread(rss[name], 0),
            f"{pss[name] / MB:,.0f}" if name in pss else "",
        ]
        for name in taken
    ]
    head = ("", "wall, s", "CPU, s", "photos/s", "MB/s", "peak RSS, MB", "peak PSS, MB")
    lines = [measure.table(head, rows), ""]
    if "tfshards" in taken:
        others = [name for name in taken if name != "tfshards"]
        factors = [
            [
                NAMES[name],
                spread(ratios(wall[name], wall["tfshards"]), 2),
                spread(ratios(cpu[name], cpu["tfshards"]), 2),
                spread(ratios(rss[name], rss["tfshards"]), 2),
            ]
            for name in others
        ]
        head = ("multiple of tfshards, by round", "wall", "CPU", "peak RSS")
        lines += [measure.table(head, factors), "", *_goals(wall, cpu, rss, twice), ""]
    flags = [flag for flag in ("memory_twice", "no_pss") if getattr(options, flag)]
    command = ["python benchmarks/prep.py --photos PHOTOS", f"--copies {options.copies}"]
    command += [f"--rounds {options.rounds}", *(f"--{flag.replace('_', '-')}" for flag in flags)]
    lines += [
        f"{number:,} photos, {size / MB:,.0f} MB, {options.shards} shards; {options.rounds} rounds in turns, "
        f"page cache warm. {measure.HOW}{measure.PSS_HOW if pss else ''}",
        "",
        measure.machine(PACKAGES),
        "",
        f"`{' '.join(command)}`",
    ]
    return "\n".join(lines)


def _goals(
    wall: Mapping[str, Sequence[float]],
    cpu: Mapping[str, Sequence[float]],
    rss: Mapping[str, Sequence[float]],
    twice: Sequence[Measurement],
) -> list[str]:
    lines = []
    if "copy" in cpu:
        shares = ratios(cpu["tfshards"], [2.5 * seconds + 1.5 for seconds in cpu["copy"]])
        text = "CPU over 2.5 times the copy loop's + 1.5 s, by round"
        lines.append(measure.goal(text, statistics.median(shares), 1))
    if "tfds" in wall:
        faster = ratios(wall["tfds"], wall["tfshards"])
        text = "wall, times faster than TFDS in process, by round"
        lines.append(measure.goal(text, statistics.median(faster), 3, at_least=True))
    lines.append(measure.goal("peak memory of all processes together, MB of RSS", max(rss["tfshards"]), 300))
    if twice:
        more = statistics.median(result.rss / MB for result in twice) / statistics.median(rss["tfshards"])
        shown = spread([result.rss / MB for result in twice], 0)
        lines.append(measure.goal(f"peak memory with twice the files ({shown} MB), times", more, 1.1))
    return lines


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _count(folder: Path) -> int:
    return len(_files(folder))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files(folder))


if __name__ == "__main__":
    main()
