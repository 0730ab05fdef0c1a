"""Compare reading TFRecord files in a Beam pipeline: ReadShards, and ReadFromTFRecord with parsing.

    python benchmarks/pipelines.py --rounds 5

Both read the same shards on Beam's local runner, check the checksums, and yield a key and NumPy values.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apache_beam as beam
import measure
import numpy as np
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from tfshards import prep

# number of examples, and the most bytes of one
KINDS = {"arrays": (400_000, 784), "photos": (24_000, 40_000)}
NAMES = {"beam": "ReadFromTFRecord and parsing", "tfshards": "ReadShards"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="measured runs per contestant (default: 5)")
    parser.add_argument("--scale", type=float, default=1, help="factor of the examples (default: 1)")
    parser.add_argument("--work", type=Path, help="folder of the files (default: a temporary folder)")
    options = parser.parse_args()
    readers: dict[str, Callable[[Path], beam.PTransform]] = {
        "beam": read_with_beam,
        "tfshards": prep.ReadShards,
    }
    rows = []
    with tempfile.TemporaryDirectory(dir=options.work, prefix="tfshards-bench-") as folder:
        for kind, (full, size) in KINDS.items():
            count, root = int(full * options.scale), Path(folder) / kind
            write(root, kind, count, size)
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in readers}
            # the first round is not counted
            for number in range(options.rounds + 1):
                for name, reader in readers.items():
                    measured = run(reader(root), count)
                    taken[name] += [measured] if number else []
            for name, results in taken.items():
                wall, cpu = ([each[part] for each in results] for part in (0, 1))
                of_beam = (
                    statistics.median(measure.ratios([each[part] for each in taken["beam"]], own))
                    for part, own in enumerate((wall, cpu))
                )
                rate = f"{count / statistics.median(wall):,.0f}"
                times = measure.spread(wall, 2), measure.spread(cpu, 2)
                rows.append((f"{kind}: {NAMES[name]}", rate, *times, *(f"{ratio:.2f}" for ratio in of_beam)))
    head = ("", "examples/s", "seconds", "CPU seconds", "speed, ratio", "speed by CPU, ratio")
    print(measure.table(head, rows))
    print(measure.machine(["tfshards", "apache-beam", "tensorflow", "numpy"]))


def write(root: Path, kind: str, count: int, size: int) -> None:
    """Write a dataset in 8 shards: images of 28 x 28 bytes, or byte strings as long as photos; and labels."""
    rng = np.random.default_rng(0)

    def examples() -> Iterator[dict[str, object]]:
        for number in range(count):
            image = rng.integers(0, 256, (28, 28), np.uint8)
            value = image if kind == "arrays" else rng.bytes(int(rng.integers(size // 2, size)))
            yield {"key": f"{number:09}", "value": value, "label": number % 10}

    prep.build(prep.Examples(examples), root, shards=8)


def read_with_beam(root: Path) -> beam.PTransform:
    """Return a transform that reads a dataset as users of Beam do without tfshards."""
    import tensorflow as tf

    manifest = prep.info(root)
    shape = manifest.schema["value"].shape

    def parse(record: bytes) -> tuple[str, dict[str, object]]:
        features = tf.train.Example.FromString(record).features.feature
        (value,) = features["value"].bytes_list.value
        return features["key"].bytes_list.value[0].decode(), {
            "value": np.frombuffer(value, np.uint8).reshape(shape) if shape else value,
            "label": np.int64(features["label"].int64_list.value[0]),
        }

    read = beam.io.ReadFromTFRecord(str(root / manifest.folder / "*.tfrecord-*"), validate=False)
    return read | beam.Map(parse)


class Count(beam.DoFn):
    """Counts elements."""

    def start_bundle(self) -> None:
        """Begin at 0."""
        self._count = 0

    def process(self, _: object) -> None:
        """Count one."""
        self._count += 1

    def finish_bundle(self) -> None:
        """Add them to the metric."""
        beam.metrics.Metrics.counter("bench", "examples").inc(self._count)


def run(transform: beam.PTransform, count: int) -> tuple[float, float]:
    """Run a transform on this machine's local runner, and return its seconds and those of the CPU."""
    before = time.perf_counter(), time.process_time()
    pipeline = beam.Pipeline(FnApiRunner())
    _ = pipeline | transform | beam.ParDo(Count())
    result = pipeline.run()
    result.wait_until_finish()
    seconds = time.perf_counter() - before[0], time.process_time() - before[1]
    (found,) = result.metrics().query()["counters"]
    if found.committed != count:
        raise SystemExit(f"{found.committed} of {count} examples were read")
    return seconds


if __name__ == "__main__":
    main()
