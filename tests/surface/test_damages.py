"""Damages of a dataset: what each verb and reader says about them, by class, code, path and record."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.format_reader import companion, digest_of, with_digest
from tests.pictures import write
from tests.prep.exported import frame
from tests.surface.command import refused, run, run_json
from tests.surface.conftest import picture
from tfshards import loader, prep
from tfshards.schemas import FormatError, InputError


class Files(NamedTuple):
    """A dataset and the paths of the files of its first shard, in its folder."""

    root: Path
    manifest: dict
    shard: str
    idx: str
    labels: str
    keys: str
    rejects: str
    view: str
    copy: str

    def change(self, name: str, edit: Callable[[bytes], bytes]) -> None:
        path = self.root / getattr(self, name, name)
        path.write_bytes(edit(path.read_bytes()))

    def records(self, change: Callable[[list[bytes]], list[bytes]]) -> None:
        """Write the records of the shard in another way, of which no other file knows."""
        data, found = (self.root / self.shard).read_bytes(), []
        for line in (self.root / self.idx).read_text().splitlines():
            start, length = map(int, line.split())
            found.append(data[start + 12 : start + length - 4])
        (self.root / self.shard).write_bytes(b"".join(map(frame, change(found))))

    def state(self, **fields: object) -> None:
        """Write a manifest that states something else of the shard, or of its split."""
        split = self.manifest["splits"]["train"]
        for name, value in fields.items():
            (split if name in split else split["shards"][0])[name] = value
        text = with_digest(json.dumps(self.manifest).encode())
        for folder in (self.root, self.root / self.manifest["folder"]):
            (folder / "dataset.json").write_bytes(text)


def files_of(root: Path) -> Files:
    manifest = json.loads((root / "dataset.json").read_text())
    shard = manifest["splits"]["train"]["shards"][0]["path"]
    return Files(
        root,
        manifest,
        shard,
        companion(shard, "idx"),
        companion(shard, "labels"),
        companion(shard, "keys"),
        *(f"{manifest['folder']}/{name}" for name in ("rejected.jsonl", "labels.txt", "dataset.json")),
    )


@pytest.fixture(scope="module")
def datasets(tmp_path_factory) -> Path:
    """Two equal datasets with rejected inputs, one of them compressed."""
    root = tmp_path_factory.mktemp("damages")
    for number in range(12):
        write(root / "photos" / ("cat", "dog")[number % 2] / f"{number}.png", picture(number))
    write(root / "photos" / "cat" / "bad.png", "no image")
    for compression in ("none", "gzip"):
        options = prep.Options(splits={"train": 0.6, "val": 0.4}, compression=compression, max_rejected=1)
        prep.build(prep.ImageFolder(root / "photos"), root / compression, shards=2, options=options)
        assert prep.verify(root / compression, deep=True)
    return root


@pytest.fixture
def copy(datasets, tmp_path) -> Callable[[str], Files]:
    return lambda compression: files_of(shutil.copytree(datasets / compression, tmp_path / "data"))


def flipped(at: int) -> Callable[[Files], None]:
    def edit(data: bytes) -> bytes:
        return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]

    return lambda files: files.change("shard", edit)


def moved(files: Files) -> None:
    """Move the border between two records of the index, which keeps their number and sum."""

    def edit(data: bytes) -> bytes:
        (_, one), (_, two) = (line.split() for line in data.splitlines()[:2])
        return b"0 %d\n%d %d\n" % (int(one) + 1, int(one) + 1, int(two) - 1) + b"".join(
            data.splitlines(keepends=True)[2:]
        )

    files.change("idx", edit)


def relabeled(files: Files) -> None:
    files.change("labels", lambda data: bytes(b ^ 1 if n % 8 == 0 else b for n, b in enumerate(data)))


def renamed(files: Files) -> None:
    files.change("keys", lambda data: b"\0".join(key + b"~" for key in data.split(b"\0")))


def restated(damage: Callable[[Files], None], name: str) -> Callable[[Files], None]:
    """Damage a file, and let the manifest know its digest."""

    def run(files: Files) -> None:
        damage(files)
        field = {"idx": "index_digest", "labels": "labels_digest", "keys": "keys_digest"}[name]
        files.state(**{field: digest_of((files.root / getattr(files, name)).read_bytes())})

    return run


def pipe(files: Files) -> None:
    (files.root / files.shard).unlink()
    os.mkfifo(files.root / files.shard)


def unreadable(files: Files) -> None:
    (files.root / files.shard).unlink()
    # a regular file whose first byte cannot be read
    (files.root / files.shard).symlink_to("/proc/self/mem")


def without(name: str) -> Callable[[Files], None]:
    return lambda files: (files.root / getattr(files, name, name)).unlink()


def put(name: str, data: bytes) -> Callable[[Files], None]:
    return lambda files: files.change(name, lambda _: data)


def counted_wrongly(files: Files) -> None:
    counts = files.manifest["splits"]["train"]["label_counts"]
    counts["cat"], counts["dog"] = counts["cat"] + 1, counts["dog"] - 1
    files.state()


# What is damaged; what ``verify`` names, and with ``deep`` beside it; what ``Records`` and ``diff`` raise.
# A name is that of a file, a number that of a record of the shard.
BAD, LOST = (FormatError, "format"), (InputError, "shard-damaged")
DAMAGES = {
    "a bit of a record": ("none", flipped(40), ["shard"], [0], BAD, None),
    "a bit of a length": ("none", flipped(2), ["shard"], [0], BAD, None),
    "a cut in a record": ("none", lambda f: f.change("shard", lambda d: d[:-5]), ["shard"], [-1], BAD, LOST),
    "bytes behind": ("none", lambda f: f.change("shard", lambda d: d + b"\0"), ["shard"], [-2], BAD, LOST),
    "a record less": ("none", lambda f: f.records(lambda r: r[:-1]), ["shard"], [-1], BAD, LOST),
    "other order": ("none", lambda f: f.records(lambda r: r[::-1]), ["shard"], [0], BAD, None),
    "a record twice": ("none", lambda f: f.records(lambda r: [r[0], *r]), ["shard"], None, BAD, LOST),
    "another record": ("none", lambda f: f.records(lambda r: [*r[:-1], r[0]]), ["shard"], None, BAD, LOST),
    "an empty shard": ("none", put("shard", b""), ["shard"], [0], BAD, LOST),
    "no shard": ("none", without("shard"), ["shard"], [], BAD, LOST),
    "a pipe": ("none", pipe, ["shard"], [], BAD, LOST),
    "a faulty disk": ("none", unreadable, ["shard"], [], BAD, LOST),
    "gzip data": ("gzip", flipped(60), ["shard"], None, (InputError, "cache-needed"), None),
    "gzip, cut": (
        "gzip",
        lambda f: f.change("shard", lambda d: d[:-9]),
        ["shard"],
        None,
        (InputError, "cache-needed"),
        LOST,
    ),
    "gzip, more": (
        "gzip",
        lambda f: f.change("shard", lambda d: d + gzip.compress(bytes(50_000_000))),
        ["shard"],
        [-2],
        (InputError, "cache-needed"),
        LOST,
    ),
    "gzip, other level": (
        "gzip",
        lambda f: f.change("shard", lambda d: gzip.compress(gzip.decompress(d), 1)),
        ["shard"],
        ["shard"],
        (InputError, "cache-needed"),
        LOST,
    ),
    "no index": ("none", without("idx"), ["idx"], [], BAD, None),
    "an index of letters": ("none", put("idx", b"0 abc\n"), ["idx"], [], BAD, None),
    "a long index": ("none", put("idx", b"0" * 1000), ["idx"], [], BAD, None),
    "an index of other places": ("none", moved, ["idx"], [], BAD, None),
    "the same, stated": ("none", restated(moved, "idx"), [], [0], BAD, None),
    "no labels": ("none", without("labels"), ["labels"], [], None, None),
    "other labels": ("none", relabeled, ["labels"], [], None, None),
    "other labels, stated": ("none", restated(relabeled, "labels"), [], [0], None, None),
    "no keys": ("none", without("keys"), ["keys"], [], None, None),
    "a key less": (
        "none",
        lambda f: f.change("keys", lambda d: d.partition(b"\0")[2]),
        ["keys"],
        [],
        None,
        None,
    ),
    "other keys": ("none", renamed, ["keys"], [], None, None),
    "other keys, stated": ("none", restated(renamed, "keys"), [], [0], None, None),
    "other last bytes": ("none", lambda f: f.state(last_bytes="00" * 8), ["shard"], ["shard"], None, None),
    "other examples": ("none", lambda f: f.state(examples_digest="0" * 16), [], ["shard"], None, None),
    "other counts": ("none", counted_wrongly, [], ["splits.train.label_counts"], None, None),
    "other rejects": ("none", put("rejects", b"{}\n"), ["rejects"], [], None, None),
    "no rejects": ("none", without("rejects"), ["rejects"], [], None, None),
    "another view": ("none", put("view", b"emu\n"), ["view"], [], None, None),
    "no manifest of the build": ("none", without("copy"), ["copy"], [], None, None),
}


@pytest.mark.parametrize("row", DAMAGES.values(), ids=DAMAGES)
def test_every_damage_is_named(row, copy, datasets, monkeypatch):
    compression, damage, shallow, deep, records, diff = row
    files = copy(compression)
    num_records = len((files.root / files.idx).read_text().splitlines())
    damage(files)
    shallow = [getattr(files, name, name) for name in shallow]
    assert [problem.place for problem in prep.verify(files.root).problems] == shallow
    report = prep.verify(files.root, deep=True)
    found = [getattr(problem, "record", problem.place) for problem in report.problems]
    if deep is None:
        # which bytes of a record are wrong depends on the release of zlib
        assert {problem.place for problem in report.problems} == {*shallow}
        assert len(found) > len(shallow)
    else:
        wanted = [getattr(files, place, place) if isinstance(place, str) else place for place in deep]
        numbers = {-1: num_records - 1, -2: num_records}
        assert sorted(found, key=str) == sorted(
            [*shallow, *(numbers.get(place, place) for place in wanted)], key=str
        )
    listed = report.to_json()
    assert listed["dataset"] == str(files.root)
    assert [problem["place"] for problem in listed["problems"]] == [each.place for each in report.problems]
    for call, expected in (
        (lambda: [*loader.Records(files.root, "train")], records),
        (lambda: prep.diff(datasets / compression, files.root), diff),
    ):
        if expected is None:
            call()
        else:
            with pytest.raises(expected[0]) as caught:
                call()
            assert caught.value.code == expected[1], caught.value
            assert expected[1] == "cache-needed" or any(
                name in str(caught.value) for name in (files.shard, files.idx)
            )
    monkeypatch.chdir(files.root.parent)
    assert run("info data").status == 0
    assert run("verify data --deep").status == 1
    _, printed = run_json("verify data --deep")
    assert json.dumps(printed).count('"place"') == len(found)


@pytest.mark.parametrize("name", ["key", "number"])
@pytest.mark.parametrize("kind", ["none", "gzip"])
def test_a_damaged_record_is_named_by_each_verb_that_reads_it(kind, name, copy, monkeypatch):
    files = copy(kind)
    path = files.root / files.shard
    data = bytearray(path.read_bytes() if kind == "none" else gzip.decompress(path.read_bytes()))
    data[-1] ^= 1
    path.write_bytes(data if kind == "none" else gzip.compress(data))
    (*_, problem) = [
        p for p in prep.verify(files.root, deep=True).problems if isinstance(p, prep.RecordProblem)
    ]
    monkeypatch.chdir(files.root.parent)
    if name == "key":
        assert refused(
            f"show data {problem.key}", [files.shard, str(problem.offset)], status=1, code="record-damaged"
        )
    else:
        place = f"train:{problem.record}"
        assert refused(
            f"show data {place}", [files.shard, str(problem.offset)], status=1, code="record-damaged"
        )
    for verb in ("audit data", "export data new --to webdataset"):
        ended, error = run_json(verb)
        assert (ended.status, error["code"]) == (1, "record-damaged"), error
        assert files.shard in ended.err


# Texts of an index whose digest the manifest states; of None, one offset of the right index is wrong.
INDEXES = [
    None,
    *("0 16\n16 20", "0 16\n\n16 16\n", "0 16 16\n", "0 16\r\n", "0 16\n15 16\n", "0 16\n16 15\n", ""),
    # Arabic digits, and more than int64 has
    *("0 \u0661\u0666\n", f"0 {10**18}\n", f"0 {10**30}\n"),
    # sums that overflow
    f"0 {10**18 - 1}\n{10**18 - 1} {10**18 - 1}\n{2 * 10**18 - 2} 16\n",
]


@pytest.mark.parametrize("text", INDEXES)
def test_a_hostile_index_is_refused_whatever_the_manifest_states(text, copy):
    files = copy("none")
    if text is None:
        first, second, *others = (files.root / files.idx).read_text().splitlines(keepends=True)
        text = "".join([first, f"{int(second.split()[0]) + 1} {second.split()[1]}\n", *others])
    restated(put("idx", text.encode()), "idx")(files)
    (problem,) = prep.verify(files.root).problems
    assert problem.place == files.idx
    assert problem.message.isprintable()
    assert len(problem.message) < 200
    with pytest.raises(FormatError, match=Path(files.shard).name):
        loader.Records(files.root, "train")[0]
    with pytest.raises(FormatError, match=Path(files.shard).name):
        loader.load(files.root, "train", batch_size=1, shuffle=loader.Shuffle(seed=1))
