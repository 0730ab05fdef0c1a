"""Archives of arrays: what is read from an .npz, and what is refused before it is unpacked."""

import shutil
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.errors import fault, raises
from tfshards.prep import Arrays
from tfshards.prep.sources.arrays.files import stage_arrays
from tfshards.prep.sources.arrays.npz import Member
from tfshards.schemas import InputError

from .test_array_damage import npy
from .test_arrays import columns

SOUND = npy(np.arange(6, dtype=np.uint16).reshape(3, 2))


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "all.npz"


def write(path: Path, *names: str, data: bytes = SOUND, method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), data, method)


def rows(path: Path, folder: Path) -> dict[str, list[object]]:
    return columns(Arrays.open([str(path)]), folder)


def in_directory(path: Path, place: int, layout: str, *values: int) -> None:
    """Overwrite fields of the first entry in the directory of the archive; ``place`` is the offset in it."""
    data = bytearray(path.read_bytes())
    struct.pack_into(layout, data, data.index(b"PK\1\2") + place, *values)
    path.write_bytes(data)


def test_members_are_features_in_the_order_of_their_names(path, tmp_path):
    np.savez(path, **{"b": np.arange(3), "a/w": np.arange(3) * 2, "ä": np.arange(3) * 3})
    found = rows(path, tmp_path / "staged")
    assert list(found) == ["a/w", "b", "ä", "key"]
    assert found["ä"] == [0, 3, 6]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_written_by_numpy_are_read(save, path, tmp_path):
    save(path, x=np.arange(6, dtype=np.uint16).reshape(3, 2))
    with zipfile.ZipFile(path) as archive:
        # NumPy prepares every member for zip64
        assert archive.infolist()[0].create_version >= 20
    assert rows(path, tmp_path / "staged")["x"] == [b"\0\0\1\0", b"\2\0\3\0", b"\4\0\5\0"]


def test_sizes_in_zip64_fields_are_read(path, tmp_path):
    write(path, "x.npy")
    data = path.read_bytes()
    start, size = data.index(b"PK\1\2"), len(SOUND)
    extra = struct.pack("<HHQQ", 1, 16, size, size)
    entry = bytearray(data[start : data.index(b"PK\5\6")])
    struct.pack_into("<II", entry, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", entry, 30, len(extra))
    entry += extra
    end = bytearray(data[data.index(b"PK\5\6") :])
    struct.pack_into("<I", end, 12, len(entry))
    path.write_bytes(data[:start] + entry + end)
    assert len(rows(path, tmp_path / "staged")["x"]) == 3


PATH_TRICK = r"has a path as its name; rename it to a plain NAME\.npy$"
NAMES = {
    **dict.fromkeys(("../x.npy", "a/../../x.npy", "./x.npy", "/x.npy", "a//x.npy"), PATH_TRICK),
    **dict.fromkeys(("..\\x.npy", "C:\\x.npy"), PATH_TRICK),
    **dict.fromkeys(("a/", "a.npy/"), r" is a folder or a link; an \.npz file holds arrays only$"),
    **dict.fromkeys(("readme.txt", ".npy"), r" is not an array; every member must be a NAME\.npy$"),
}


@pytest.mark.parametrize(("name", "message"), NAMES.items())
def test_a_member_name_with_a_path_is_refused(name, message, path):
    write(path, name)
    with pytest.raises(InputError, match=r"all\.npz: .*" + message):
        Arrays.open([str(path)])


def test_a_large_member_is_unpacked_in_little_memory_and_no_more_disk_than_declared(path, tmp_path):
    write(path, "x.npy", data=npy(np.zeros((40, 2**20), np.uint8)), method=zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    try:
        arrays = stage_arrays({"x": Member(str(path), "x")}, tmp_path, preview=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert Path(arrays["x"].path).stat().st_size > 40 << 20


def test_copies_that_do_not_fit_on_the_disk_are_not_started(path, tmp_path, monkeypatch):
    write(path, "x.npy", data=npy(np.zeros(10_000)))
    usage = shutil.disk_usage(tmp_path)._replace(free=50_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    source = Arrays.open([str(path)])
    (tmp_path / "staged").mkdir()
    with raises(InputError, "disk-full", what="the copy of the arrays"):
        source.stage(tmp_path / "staged")
    assert not [*(tmp_path / "staged").rglob("*.npy")]


def test_a_copy_that_cannot_be_written_is_not_reported_as_a_damaged_archive(path, tmp_path, monkeypatch):
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda found, mode="r": opened(Path("/dev/full"), mode))
    write(path, "x.npy", data=npy(np.zeros(10_000)))
    with raises(InputError, "copy-unwritable"):
        stage_arrays({"x": Member(str(path), "x")}, tmp_path, preview=False)


def test_an_archive_replaced_after_its_names_were_read_is_reported(path, tmp_path):
    write(path, "x.npy")
    source = Arrays.open([str(path)])
    write(path, "y.npy")
    with raises(InputError, "npz-unreadable"):
        source.stage(tmp_path)


def link(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("x.npy")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, b"/etc/passwd")


def overlap(path: Path) -> None:
    write(path, "x.npy", "y.npy")
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.rindex(b"PK\1\2") + 42, 0)
    path.write_bytes(data)


def changed(change, name: str = "x.npy"):
    def make(path: Path) -> None:
        write(path, name)
        path.write_bytes(change(path.read_bytes()))

    return make


def with_field(place: int, value: int):
    def make(path: Path) -> None:
        write(path, "x.npy")
        in_directory(path, place, "<H", value)

    return make


NUL = changed(lambda data: data.replace(b"x.npy_evil", b"x.npy\0evil"), "x.npy_evil")
UNSOUND = {
    "a name with a NUL": (NUL, r"the member 'x\.npy\\x00evil' has a path as its name"),
    "a link": (link, r"the member 'x\.npy' is a folder or a link"),
    "a name twice": (lambda path: write(path, "x.npy", "y.npy", "x.npy"), r"'x\.npy' occurs 2 times$"),
    "no members": (lambda path: write(path), r"has no members$"),
    "encrypted": (with_field(8, 1), r"'x\.npy' is encrypted; unpack the archive and use its \.npy fil"),
    "bzip2": (with_field(10, 12), r"by method 12; write the file with numpy\.savez_compressed"),
    "an unknown method": (with_field(10, 93), r"by method 93; write the file with numpy\.savez_compressed"),
    "more bytes": (changed(lambda data: data + b"!"), r"bytes follow the end of the archive; it is damaged"),
    "bytes before it": (changed(lambda data: b"#!/bin/sh\n" + data), r"10 bytes precede the archive; it is"),
    "members that share bytes": (overlap, r"'[xy]\.npy' overlaps the next one; the archive is damaged"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("make", "message"), UNSOUND.values(), ids=UNSOUND)
def test_an_unsound_archive_is_refused_by_its_directory(make, message, path):
    make(path)
    with pytest.raises(InputError, match=rf"all\.npz: .*{message}"):
        Arrays.open([str(path)])


@pytest.mark.parametrize(
    ("data", "method", "size", "kind"),
    [
        *((SOUND, zipfile.ZIP_STORED, n, "stored") for n in (len(SOUND) - 1, len(SOUND) + 1, 2**32 - 2)),
        (npy(np.zeros(10**6, np.uint8)), zipfile.ZIP_DEFLATED, 2**31, "deflated"),
    ],
)
def test_an_impossible_size_is_refused_by_the_directory(data, method, size, kind, path):
    write(path, "x.npy", data=data, method=method)
    assert len(Arrays.open([str(path)]).arrays) == 1
    in_directory(path, 24, "<I", size)
    message = rf"declares {size} bytes, which its \d+ bytes, {kind}, cannot hold$"
    with pytest.raises(InputError, match=message):
        Arrays.open([str(path)])


LONGER = SOUND.replace(b"(3, 2)", b"(3, 9)")


@pytest.mark.parametrize(
    ("data", "size", "checksum", "error"),
    [
        (SOUND, len(SOUND) + 1, zlib.crc32(SOUND), fault("npy-size", num_bytes=13)),
        (SOUND + b"x", len(SOUND), zlib.crc32(SOUND + b"x"), "npz-unreadable"),
        (LONGER, len(LONGER) + 42, zlib.crc32(LONGER), "npz-unreadable"),
        (SOUND, len(SOUND), 0, "npz-unreadable"),
    ],
)
def test_a_member_that_is_not_as_declared_is_refused(data, size, checksum, error, path, tmp_path):
    write(path, "x.npy", data=data, method=zipfile.ZIP_DEFLATED)
    in_directory(path, 16, "<I", checksum)
    in_directory(path, 24, "<I", size)
    with raises(InputError, error):
        rows(path, tmp_path / "staged")
