"""The one runner of rows: what a build promises is checked from outside, by public functions and by files."""

import io
import os
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import format_reader
from tests.conformance.calls import Call, changed
from tests.conformance.inputs import SECRET, png, write
from tests.conformance.rows import Refused, Stored
from tfshards import loader, prep
from tfshards.prep import verify
from tfshards.schemas import OptionsError

OUT = Path("out")


def check(files: Any, call: Call, expected: Stored | Refused) -> None:
    """Judge a row in the current folder, which is empty."""
    write(files, Path())
    with prep.limited_jobs(1):
        (check_refused if isinstance(expected, Refused) else check_stored)(call, expected)


def check_refused(call: Call, expected: Any) -> None:
    """A refusal has its class, names what is wrong, and leaves everything as it was."""
    if "shards" not in call.given:
        call = changed(call, shards=1)
    before = tree(Path())
    with pytest.raises(expected.error) as raised:
        call.build(log=lambda _: None)
    assert type(raised.value) is expected.error
    assert expected.code in (None, raised.value.code)
    printed = io.StringIO()
    if not call.is_in_memory:
        with redirect_stderr(printed):
            assert call.run("--quiet") == (2 if issubclass(expected.error, OptionsError) else 1)
    for name in expected.names:
        assert name in str(raised.value)
    assert SECRET not in str(raised.value) + printed.getvalue()
    assert not (OUT / "dataset.json").exists()
    after = tree(Path())
    assert {name: after.get(name) for name in before} == before


def check_stored(call: Call, expected: Any) -> None:
    """A dataset holds what is expected; built again it is up to date; a lost shard is written again."""
    call = sharded(call, expected)
    log: list[str] = []
    call.build(log=log.append)
    judge(OUT, expected, log)
    before = tree(OUT)
    if call.is_in_memory:
        call.build(log=log.append)
    else:
        assert call.run("--quiet", "--jobs=1") == 0
    assert tree(OUT) == before, "the same build is not up to date"
    shard = max(OUT.glob("*/*.tfrecord-*"), key=lambda path: path.stat().st_size)
    shard.unlink()
    assert not verify(OUT)
    call.build(log=log.append)
    assert contents(OUT) == {name: content for name, (_, content) in before.items()}


def sharded(call: Call, expected: Any) -> Call:
    """Return a call for two shards of each split, or for one where a split has one example."""
    if "shards" in call.given:
        return call
    return changed(call, shards=min(2, *map(len, expected.splits.values())))


def check_jobs(files: Any, call: Call, expected: Any) -> None:
    """Two processes write the bytes that one writes."""
    call = sharded(call, expected)
    write(files, Path())
    with prep.limited_jobs(1):
        call.build(log=lambda _: None)
    alone = contents(OUT)
    OUT.rename("alone")
    if call.is_in_memory:
        call.build(log=lambda _: None)
    else:
        assert call.run("--quiet", "--jobs=2") == 0
    assert contents(OUT) == alone


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return inode and content of every file below a folder."""
    return {
        path.relative_to(root).as_posix(): (path.lstat().st_ino, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.parts[0] != "class_names.txt"
    }


def contents(root: Path) -> dict[str, bytes]:
    return {name: content for name, (_, content) in tree(root).items()}


def judge(out: Path, expected: Stored, log: list[str]) -> None:
    """Compare a dataset, read from docs/format.md and by the loader, with what is expected."""
    manifest = format_reader.read_manifest(format_reader.Folder(out))
    schema = {feature["name"]: feature for feature in manifest["schema"]["features"]}
    splits = format_reader.read(out)
    assert tuple(manifest["schema"]["class_names"]) == expected.classes
    assert [*splits] == [*expected.splits]
    for split, examples in splits.items():
        wanted = expected.splits[split]
        assert {*examples} == {*wanted}
        sizes = [shard["num_examples"] for shard in manifest["splits"][split]["shards"]]
        assert max(sizes) - min(sizes) <= 1
        for key, values in examples.items():
            assert {*values} == {*wanted[key], "key"}, key
            for name, value in wanted[key].items():
                where = f"{split}, {key}, {name}"
                compare(schema[name], expected.classes, values[name], value, where)
    for name, text in expected.features.items():
        found = schema[name]
        shape = " ".join("?" if size is None else str(size) for size in found["shape"])
        more = [found[each] for each in ("coordinates", "pixels") if each in found]
        assert " ".join([found["kind"], found["dtype"], shape, *more]).split() == text.split(), name
    totals = manifest["totals"]
    assert totals["reasons"].get("rejected", {}) == expected.rejected
    assert totals["reasons"].get("skipped", {}) == expected.skipped
    assert totals["conversions"] == expected.conversions
    warnings = [line for line in log if line.startswith("warning")]
    for word in expected.warns:
        assert any(word in line for line in warnings), (word, warnings)
    report = verify(out, deep=True)
    assert report, str(report)
    if manifest["compression"] == "none":
        compare_records(out, splits)


def compare_records(out: Path | str, splits: Any) -> None:
    """The loader returns the same examples in the same order."""
    for split, examples in splits.items():
        records = loader.Records(out, split)
        assert len(records) == len(examples)
        for found, wanted in zip(records, examples.values(), strict=True):
            assert {*found} == {*wanted}
            for name, value in wanted.items():
                assert_same(found[name], value, name)


def assert_same(found: Any, wanted: Any, where: str) -> None:
    if isinstance(wanted, (bytes, list)):
        assert (found if isinstance(found, bytes) else np.asarray(found).tolist()) == wanted, where
    else:
        assert (np.asarray(found).dtype, np.shape(found)) == (wanted.dtype, wanted.shape), where
        assert np.asarray(found).tobytes() == wanted.tobytes(), where


def compare(feature: Any, classes: tuple[str, ...], found: Any, wanted: Any, where: str) -> None:
    """Compare a value with the one that a row gives."""
    kind = feature["kind"]
    if kind in ("image", "mask"):
        if isinstance(wanted, int):
            wanted = png(wanted)
        if isinstance(wanted, bytes):
            assert found == wanted, where
        else:
            shown = format_reader.decode(found)
            assert (shown.shape, shown.tolist()) == (wanted.shape, wanted.tolist()), where
    elif kind == "bytes":
        assert found == encoded_text(wanted), where
    elif kind == "label" and classes:
        names = np.array([*classes, None], object)
        assert names[found].tolist() == wanted if found.ndim else names[found] == wanted, where
    else:
        exact = np.asarray(wanted, found.dtype if np.size(wanted) == 0 else None)
        assert found.shape == exact.shape, where
        assert np.array_equal(found, exact, equal_nan=found.dtype.kind in "fc"), (where, found, wanted)
        if isinstance(wanted, (np.ndarray, np.generic)):
            # its dtype, signed zeros and NaN, too
            assert found.dtype == wanted.dtype.newbyteorder("="), where
            assert found.tobytes() == wanted.astype(found.dtype).tobytes(), where


def encoded_text(value: Any) -> Any:
    if isinstance(value, list):
        return [encoded_text(each) for each in value]
    return os.fsencode(value) if isinstance(value, str) else value
