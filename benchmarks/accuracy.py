"""What the form in which photos are stored does to the accuracy of a network that is trained on them.

A small convolutional network is trained for the same number of epochs on random views of the same photos,
stored as they are, as ``build --for-training SIZE`` stores them, and as pixels, with several seeds each. All
are tested on the same photos as they are: the middle, 7/8 of each side.

Usage: python benchmarks/accuracy.py --photos TRAIN --tests TEST [--size 96] [--epochs 30] [--seeds 5]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import measure

BATCH, WARM_EPOCHS = 64, 2
FORMS = {
    "originals, random crop": ("originals", "random"),
    "JPEG for training, random crop": ("jpeg", "random"),
    "JPEG for training, shift": ("jpeg", "shift"),
    "pixels for training, random crop": ("pixels", "random"),
    "pixels for training, shift": ("pixels", "shift"),
}
# Student's t of 95 % for 1 to 9 degrees of freedom
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="folder of class folders, for training")
    parser.add_argument("--tests", type=Path, required=True, help="folder of the same class folders")
    parser.add_argument("--size", type=int, default=96, help="side of the views (default: 96)")
    parser.add_argument("--epochs", type=int, default=30, help="epochs of each run (default: 30)")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each form, 2 to 10 (default: 5)")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        work, stored, crop, seed = options.child
        print(json.dumps(train(Path(work), stored, crop, int(seed), options.size, options.epochs)))
        return
    found: dict[str, list[float]] = {name: [] for name in FORMS}
    with tempfile.TemporaryDirectory(prefix="tfshards-accuracy-") as work:
        tfshards = Path(sys.executable).with_name("tfshards")
        training = ["--for-training", str(options.size)]
        for name, photos, words in (
            ("tests", options.tests, []),
            ("originals", options.photos, []),
            ("jpeg", options.photos, training),
            ("pixels", options.photos, [*training, "--format", "pixels"]),
        ):
            command = [tfshards, "build", "images", photos, Path(work) / name, *words, "--quiet"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        shared = ["--photos", options.photos, "--tests", options.tests]
        shared += ["--size", str(options.size), "--epochs", str(options.epochs)]
        for seed in range(options.seeds):
            for name, (stored, crop) in FORMS.items():
                command = [sys.executable, __file__, *shared, "--child", work, stored, crop, str(seed)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                found[name].append(json.loads(done.stdout.splitlines()[-1]))
                print(f"seed {seed}, {name}: {found[name][-1]:.4f}", file=sys.stderr, flush=True)
    print(report(found))
    print(measure.machine(["tfshards", "tensorflow", "keras", "numpy"]))
    words = f"--size {options.size} --epochs {options.epochs} --seeds {options.seeds}"
    print(f"\n`python benchmarks/accuracy.py --photos TRAIN --tests TEST {words}`")


def report(found: dict[str, list[float]]) -> str:
    """Return a table of top-1 accuracies, and of their differences from the originals with the same seed."""
    usual = next(iter(found.values()))
    rows = []
    for name, accuracies in found.items():
        differences = [one - other for one, other in zip(accuracies, usual, strict=True)]
        rows.append((name, interval(accuracies), interval(differences) if accuracies is not usual else ""))
    return measure.table(("", "top-1, %", "difference from originals"), rows)


def interval(values: list[float]) -> str:
    """Return the mean and the half width of its interval of 95 %, in percent."""
    half = STUDENT[len(values) - 2] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{100 * statistics.mean(values):.1f} ± {100 * half:.1f}"


def train(work: Path, stored: str, crop: str, seed: int, side: int, epochs: int) -> float:
    """Return the top-1 accuracy of one run."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import keras

    from tfshards import loader

    keras.utils.set_random_seed(seed)
    shared = {"batch_size": BATCH, "select": ("image", "label")}
    view = {"size": (side, side), "dtype": "float32", "normalize": "unit"}
    data = loader.load(
        work / stored,
        image=loader.Image(crop=crop, flip="horizontal", **view),
        shuffle=loader.Shuffle(seed=seed),
        **shared,
    )
    tests = loader.load(
        work / "tests",
        image=loader.Image(crop="center", crop_fraction=0.875, **view),
        remainder="keep",
        **shared,
    )
    steps = len(data)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, (epochs - WARM_EPOCHS) * steps, warmup_target=2e-3, warmup_steps=WARM_EPOCHS * steps
    )
    model = network(keras, side)
    model.compile(
        keras.optimizers.AdamW(rate, weight_decay=0.02),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(data, epochs=epochs, verbose=0)
    return float(model.evaluate(tests, verbose=0)[1])


def network(keras, side: int):
    """Return a network of five convolutions, 0.4 million weights."""
    layers = [keras.layers.Input((side, side, 3))]
    for filters in (24, 48, 96, 128, 160):
        layers += [
            keras.layers.Conv2D(filters, 3, 2, "same", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
        ]
    layers += [keras.layers.GlobalAveragePooling2D(), keras.layers.Dropout(0.2), keras.layers.Dense(10)]
    return keras.Sequential(layers)


if __name__ == "__main__":
    main()
