"""Archives of arrays: what is read from an .npz, and what is refused before it is unpacked."""

from __future__ import annotations

import io
import shutil
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tfshards.prep import Arrays
from tfshards.prep.sources.arrays.files import stage_arrays
from tfshards.prep.sources.arrays.npz import Member
from tfshards.schemas import InputError


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


SOUND = npy(np.arange(6, dtype=np.uint16).reshape(3, 2))


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "all.npz"


def write(path: Path, *names: str, data: bytes = SOUND, method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), data, method)


def rows(path: Path, folder: Path) -> dict[str, list[object]]:
    """Return the values of each feature."""
    folder.mkdir()
    reader = Arrays.open([str(path)]).stage(folder)
    listing = reader.listing()
    outcomes = reader.read(listing.rows(np.arange(listing.num_examples)), listing.schema)
    columns = zip(*(outcome.values for outcome in outcomes), strict=True)
    return dict(zip(listing.schema.names, map(list, columns), strict=True))


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


def test_an_archive_may_have_a_comment(path, tmp_path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = b"made in 2026"
        archive.writestr("x.npy", SOUND)
    assert len(rows(path, tmp_path / "staged")["x"]) == 3


PATH_TRICK = r"has a path as its name; rename it to a plain NAME\.npy$"
NAMES = {
    "up": ("../x.npy", PATH_TRICK),
    "up from within": ("a/../../x.npy", PATH_TRICK),
    "here": ("./x.npy", PATH_TRICK),
    "absolute": ("/x.npy", PATH_TRICK),
    "nothing between": ("a//x.npy", PATH_TRICK),
    "the other slash": ("..\\x.npy", PATH_TRICK),
    "a drive": ("C:\\x.npy", PATH_TRICK),
    "a folder": ("a/", r"the member 'a/' is a folder or a link; an \.npz file holds arrays only$"),
    "a folder named as an array": ("a.npy/", r"is a folder or a link"),
    "no array": (
        "readme.txt",
        r"the member 'readme\.txt' is not an array; every member must be a NAME\.npy$",
    ),
    "no name": (".npy", r"the member '\.npy' is not an array; every member must be"),
}


@pytest.mark.parametrize(("name", "message"), NAMES.values(), ids=NAMES.keys())
def test_a_member_name_with_a_path_is_refused(name, message, path):
    write(path, name)
    with pytest.raises(InputError, match=r"all\.npz: .*" + message):
        Arrays.open([str(path)])


def test_a_member_name_with_a_nul_is_refused(path):
    write(path, "x.npy_evil")
    path.write_bytes(path.read_bytes().replace(b"x.npy_evil", b"x.npy\0evil"))
    with pytest.raises(InputError, match=r"the member 'x\.npy\\x00evil' has a path as its name"):
        Arrays.open([str(path)])


def test_a_link_is_refused(path):
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("x.npy")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, b"/etc/passwd")
    with pytest.raises(InputError, match=r"the member 'x\.npy' is a folder or a link"):
        Arrays.open([str(path)])


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_repeated_member_name_is_refused(path):
    write(path, "x.npy", "y.npy", "x.npy")
    with pytest.raises(InputError, match=r"all\.npz: the member 'x\.npy' occurs 2 times$"):
        Arrays.open([str(path)])


def test_an_empty_archive_is_refused(path):
    write(path)
    with pytest.raises(InputError, match=r"all\.npz: has no members$"):
        Arrays.open([str(path)])


def test_an_encrypted_member_is_refused(path):
    write(path, "x.npy")
    in_directory(path, 8, "<H", 1)
    with pytest.raises(InputError, match=r"'x\.npy' is encrypted; unpack the archive and use its \.npy fil"):
        Arrays.open([str(path)])


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 93])
def test_a_compression_method_that_numpy_does_not_write_is_refused(method, path):
    write(path, "x.npy", method=method if method != 93 else zipfile.ZIP_STORED)
    in_directory(path, 10, "<H", method)
    with pytest.raises(InputError, match=rf"by method {method}; write the file with numpy\.savez_compressed"):
        Arrays.open([str(path)])


@pytest.mark.parametrize("size", [len(SOUND) - 1, len(SOUND) + 1, 2**32 - 2])
def test_a_stored_member_must_have_its_declared_length(size, path):
    write(path, "x.npy")
    in_directory(path, 24, "<I", size)
    with pytest.raises(
        InputError, match=rf"declares {size} bytes, which its 140 bytes, stored, cannot hold$"
    ):
        Arrays.open([str(path)])


def test_an_impossible_deflate_ratio_is_refused_by_the_directory(path):
    write(path, "x.npy", data=npy(np.zeros(10**6, np.uint8)), method=zipfile.ZIP_DEFLATED)
    assert len(Arrays.open([str(path)]).arrays) == 1
    in_directory(path, 24, "<I", 2**31)
    with pytest.raises(InputError, match=r"declares 2147483648 bytes, which its \d+ bytes, deflated, cannot"):
        Arrays.open([str(path)])


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_deflated_member_that_unpacks_to_another_length_is_refused(difference, path, tmp_path):
    data = SOUND if difference > 0 else SOUND + b"x"
    write(path, "x.npy", data=data, method=zipfile.ZIP_DEFLATED)
    in_directory(path, 16, "<I", zlib.crc32(data))
    in_directory(path, 24, "<I", len(data) + difference)
    message = r"holds 13 bytes of data; uint16 \(3, 2\) needs 12" if difference > 0 else "Bad CRC-32"
    with pytest.raises(InputError, match=rf"all\.npz\[x\]: .*{message}"):
        rows(path, tmp_path / "staged")


def test_a_wrong_length_in_header_and_directory_is_found_at_the_end_of_the_data(path, tmp_path):
    longer = SOUND.replace(b"(3, 2)", b"(3, 9)")
    write(path, "x.npy", data=longer, method=zipfile.ZIP_DEFLATED)
    in_directory(path, 24, "<I", len(longer) + 42)
    with raises(InputError, "npz-unreadable"):
        rows(path, tmp_path / "staged")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_wrong_checksum_is_refused(method, path, tmp_path):
    write(path, "x.npy", method=method)
    in_directory(path, 16, "<I", 0)
    with raises(InputError, "npz-unreadable"):
        rows(path, tmp_path / "staged")


def test_bytes_after_the_archive_are_refused(path):
    write(path, "x.npy")
    path.write_bytes(path.read_bytes() + b"!")
    with pytest.raises(
        InputError, match=r"all\.npz: bytes follow the end of the archive; it is damaged, or t"
    ):
        Arrays.open([str(path)])


def test_bytes_before_the_archive_are_refused(path):
    write(path, "x.npy")
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())
    with pytest.raises(InputError, match=r"all\.npz: 10 bytes precede the archive; it is damaged, or two"):
        Arrays.open([str(path)])


def test_members_that_share_bytes_are_refused(path):
    write(path, "x.npy", "y.npy")
    data = bytearray(path.read_bytes())
    second = data.rindex(b"PK\1\2")
    struct.pack_into("<I", data, second + 42, 0)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"the member '[xy]\.npy' overlaps the next one; the archive is dam"):
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
    assert Path(arrays["x"].parts[0].path).stat().st_size > 40 << 20


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
