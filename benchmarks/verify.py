"""Compare the checks of ``tfshards verify`` with ``sha256sum`` on the same shards.

    python benchmarks/verify.py --photos FOLDER --copies 8 --rounds 7

Every contestant runs in its own process, in turns, page cache warm.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import inputs
import measure

PACKAGES = ("tfshards", "numpy", "google-crc32c")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=Path, required=True, help="images in class folders, at any depth")
    parser.add_argument("--copies", type=int, default=8, help="copies of each photo (default: 8)")
    parser.add_argument("--rounds", type=int, default=7, help="measured runs per contestant (default: 7)")
    measure.add_json(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfshards-verify-") as folder:
        work = Path(folder).resolve()
        source = inputs.copy_photos(options.photos, work / "source", options.copies)
        inputs.build("images", source, work / "photos", "--check", "none")
        shards = sorted((work / "photos").glob("*/*.tfrecord-*"))
        commands = {"sha256sum": ["sha256sum", *map(str, shards)]}
        for flags in ([], ["--deep"], ["--decode"]):
            commands[" ".join(["verify", *flags])] = inputs.tfshards("verify", work / "photos", *flags)
        taken = measure.rounds(
            [*commands], options.rounds, lambda name: measure.measure(commands[name], work)
        )
        size = sum(path.stat().st_size for path in shards) / measure.MB
    print(f"\n{measure.compared(taken, size, 'MB')}")
    print(f"\n{size:,.0f} MB in {len(shards)} shards. {measure.HOW}")
    print(measure.footnote(PACKAGES))
    measure.save(options.json, measure.tables_of(taken), PACKAGES)


if __name__ == "__main__":
    main()
