"""Small inputs of each kind, and the commands that build them or edit what was built."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.pictures import image_file

# Modification times are part of the build id; with one time for all files, equal files are equal inputs.
STAMP = 1_600_000_000 * 10**9
BAD = (3, 11, 17)


@dataclass(frozen=True)
class Scenario:
    """A command that is killed.

    Attributes:
        before: arguments of the builds that fill the output before the command runs; may be empty.
        arguments: arguments of the command that is killed; the output is added to both.
        change: function that changes the inputs in between.
    """

    before: tuple[tuple[str, ...], ...]
    arguments: tuple[str, ...]
    change: Callable[[Path], None] = lambda folder: None


def write_inputs(folder: Path) -> None:
    """Write an image folder with a few files that are rejected, two arrays, and a table next to images.

    Also a list of keys, one of which was rejected, and new labels, one of which is a new class.
    """
    for number in range(24):
        write(folder / "photos" / ("cat", "dog")[number % 2] / f"{number:02}.bmp", image(number))
    for number in BAD:
        write(folder / "photos" / "cat" / f"bad-{number:02}.bmp", b"no image")
    for name, array in {"x": np.arange(6_000).reshape(60, 100), "y": np.arange(60) % 7}.items():
        np.save(folder / f"{name}.npy", array)
        os.utime(folder / f"{name}.npy", ns=(STAMP, STAMP))
    rows = [f"photos/{('cat', 'dog')[number % 2]}/{number:02}.bmp,{number % 5}" for number in range(24)]
    rows += [f"photos/cat/bad-{number:02}.bmp,0" for number in BAD]
    write(folder / "table.csv", "\n".join(["file_name,label", *rows, ""]).encode())
    write(folder / "keys.txt", b"dog/05.bmp\ncat/06.bmp\ncat/bad-11.bmp\n")
    write(folder / "labels.csv", b"key,label\ncat/04.bmp,emu\ncat/08.bmp,dog\n")


def fix_two(folder: Path) -> None:
    """Replace two of the bad files with good ones."""
    for number in BAD[:2]:
        write(folder / "photos" / "cat" / f"bad-{number:02}.bmp", image(number))


def image(number: int, side: int = 40) -> bytes:
    """Return a BMP, which a build has to re-encode."""
    pixels = np.random.default_rng(number).integers(0, 256, (side, side + number, 3), dtype=np.uint8)
    return image_file(pixels, "BMP")


def write(path: Path, data: bytes) -> None:
    """Write a file with the fixed modification time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(STAMP, STAMP))


def scenarios(folder: Path) -> dict[str, Scenario]:
    """Return the commands that are killed, with the inputs in ``folder``."""
    images = ("build", "images", str(folder / "photos"), "--shards=4", "--max-rejected=50%")
    arrays = ("build", "arrays", f"x={folder / 'x.npy'}", f"label={folder / 'y.npy'}", "--shards=5")
    table = ("build", "table", str(folder / "table.csv"), "--shards=3", "--max-rejected=50%")
    return {
        "images": Scenario((), images),
        "arrays": Scenario((), (*arrays, "--split=train=0.8", "--split=val=0.2")),
        "table": Scenario((), table),
        # two generations, of which the older one has to be removed
        "overwrite": Scenario(
            (images, (*images, "--seed=1", "--overwrite")), (*images, "--seed=2", "--overwrite")
        ),
        "append": Scenario((images,), ("append", images[2], "--shards=2", "--max-rejected=50%"), fix_two),
        # some shards are written, the others become links
        "remove": Scenario((images,), ("remove", f"--keys={folder / 'keys.txt'}")),
        "relabel": Scenario((images,), ("relabel", f"--labels={folder / 'labels.csv'}", "--new-classes")),
    }
