"""Builds into a bucket that start at the same time, as often as a caller asks for."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tests.durability.commands import TIMEOUT_SECONDS, Commands, Ended, start_server
from tests.durability.inputs import image, write
from tfshards.prep import prune, verify
from tfshards.schemas.names import MANIFEST_NAME
from tfshards.schemas.storage import any_path

from .conftest import Bucket
from .servers import s3_client

_REJECTED = (3, 11)


def objects(url: str) -> dict[str, bytes]:
    """Return the content of every object below a URL by its key from there."""
    root = any_path(url)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path, _ in root.walk()}


def uploads(bucket: Bucket) -> list[str]:
    """Return the keys of unfinished multipart uploads, which only S3 lists."""
    if bucket.server.url_scheme != "s3":
        return []
    found = s3_client(bucket.server).list_multipart_uploads(Bucket=bucket.name)
    return [upload["Key"] for upload in found.get("Uploads", ())]


def write_inputs(folder: Path) -> dict[str, tuple[str, ...]]:
    """Write inputs, and return the arguments of a build of each kind.

    Shards of photos are uploaded in one request, those of arrays in parts; those of many rows are also
    written by a second process, which a kill of the first one leaves.
    """
    for number in range(24):
        write(folder / "photos" / ("cat", "dog")[number % 2] / f"{number:02}.bmp", image(number))
    for number in _REJECTED:
        write(folder / "photos" / "cat" / f"bad-{number:02}.bmp", b"no image")
    np.save(folder / "large.npy", np.zeros((20, 1 << 20), np.uint8))
    np.save(folder / "many.npy", np.arange(40_000).reshape(20_000, 2))
    photos = ("build", "images", str(folder / "photos"), "--max-rejected", "20%")
    return {
        "photos": (*photos, "--shards", "4"),
        "large": ("build", "arrays", f"x={folder / 'large.npy'}", "--shards", "2"),
        "many": ("build", "arrays", f"x={folder / 'many.npy'}", "--shards", "6"),
        "other photos": (*photos, "--shards", "3", "--seed", "1"),
    }


@contextmanager
def running_commands(folder: Path, count: int) -> Iterator[list[Commands]]:
    """Yield what runs as many commands at the same time, with the environment of this process."""
    found = []
    for number in range(count):
        (folder / f"commands{number}").mkdir()
        found.append(Commands(folder / f"commands{number}", start_server()))
    try:
        yield found
    finally:
        for commands in found:
            assert commands.server.stdin
            commands.server.stdin.close()
            commands.server.wait(TIMEOUT_SECONDS)


@dataclass(frozen=True)
class Whole:
    """What an undisturbed build leaves, and how long it takes."""

    objects: dict[str, bytes]
    seconds: float


def undisturbed(commands, bucket, inputs) -> Callable[[str], Whole]:
    """Return a function that builds the inputs of a name when it is first asked for them."""

    @cache
    def whole(name: str) -> Whole:
        out = f"{bucket.url}/whole/{name.replace(' ', '-')}/data"
        # the first build imports more
        seconds = [commands.run([*inputs[name], folder]).seconds for folder in (f"{out}-first/data", out)]
        assert (any_path(out) / MANIFEST_NAME).is_file()
        return Whole(objects(out), min(seconds))

    return whole


def pairs(both, bucket, inputs, count, seed) -> Counter[str]:
    """Start two builds of one output at about the same time; one wins, and the other one says so."""
    chance = random.Random(seed)
    whole = undisturbed(both[0], bucket, inputs)
    tried: Counter[str] = Counter()
    for number in range(count):
        names = [("photos", "photos"), ("photos", "other photos"), ("many", "many")][number % 3]
        overwrite = ("--overwrite",) if chance.random() < 0.5 else ()
        out = f"{bucket.url}/pair-{number}/data"
        delay = chance.choice((0.0, chance.uniform(0, whole(names[0]).seconds)))
        first, second = together(both, [(*inputs[name], *overwrite, out) for name in names], delay)
        ended = {0: first, 1: second}
        won = [index for index, one in ended.items() if one.status == 0]
        shown = f"{names} {overwrite} {delay:.2f}\n{first.output}\n{second.output}"
        assert won, shown
        for one in ended.values():
            if one.status != 0:
                tried[reason(one, is_same=names[0] == names[1])] += 1
                assert one.status == 1, shown
            elif "another run of the same build" in one.output:
                tried["found the commit of the other run"] += 1
            elif "is up to date" in one.output:
                tried["was up to date"] += 1
            else:
                tried["committed"] += 1
        assert verify(out, deep=True), shown
        # what belongs to one of the builds that committed, whole
        manifest = (any_path(out) / MANIFEST_NAME).read_bytes()
        winners = {names[index] for index in won if whole(names[index]).objects[MANIFEST_NAME] == manifest}
        assert len(winners) == 1, shown
        winner = winners.pop()
        found = objects(out)
        expected = whole(winner).objects
        assert {name: found.get(name) for name in expected} == expected, shown
        tried["left something"] += found != expected
        prune(out)
        assert objects(out) == expected, shown
        assert uploads(bucket) == [], shown
    return tried


_REASONS = {
    "met": "is no longer finished: another run of the same build is writing it",
    "took over": "a later run of the same build has begun; wait until that has ended",
    "lost": "was committed in the meantime, so this one was not",
    "was too late": "holds a dataset with other options",
}


def reason(ended: Ended, *, is_same: bool) -> str:
    """Return which of the reasons for losing a build has given."""
    found = [name for name, text in _REASONS.items() if text in ended.output]
    of_same = ["took over"], ["met"]
    assert (found in of_same) if is_same else found and found not in of_same, ended.output
    return found[0]


def together(both: Sequence[Commands], commands: Sequence[tuple[str, ...]], delay: float) -> list[Ended]:
    """Run two commands, the second of which starts some seconds after the first one."""
    found: dict[int, Ended] = {}

    def run(index: int) -> None:
        time.sleep(index * delay)
        found[index] = both[index].run(commands[index])

    threads = [threading.Thread(target=run, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[0], found[1]]
