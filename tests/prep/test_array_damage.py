"""Randomly damaged array files: read as by NumPy or refused in one line, in little memory."""

import io
import struct
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfshards.prep import Arrays
from tfshards.schemas import InputError, OptionsError

ARRAYS = {
    "numbers": np.arange(12, dtype=">i4").reshape(6, 2),
    "label": np.array([2, 0, 1, 1], np.uint8),
    "text": np.array([["a", "bc"], ["", "猫"]]),
    "columns": np.asfortranarray(np.arange(12.0).reshape(4, 3)),
}
# Text for headers: input that is difficult to parse, and numbers that exceed any memory.
WORDS = [b"(", b")", b"[", b"'", b",", b"-", b"9" * 15, b"True", b"1.5", b"|O", b">f8", b"<U9", b"|S0", b"\0"]
# Memory used besides the file: the parser, buffers of zipfile, a listing of a few rows.
ALLOWED_BYTES = 3 << 20


@st.composite
def damages(draw: st.DrawFn, sound: bytes) -> bytes:
    """Return the bytes with up to three faults; most keep the length, which is checked first."""
    data = bytearray(sound)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        kinds = ["flip", "flip", "flip", "replace", "replace", "number", "insert", "cut", "remove", "append"]
        fault = draw(st.sampled_from(kinds))
        word = draw(st.sampled_from(WORDS))
        if fault == "flip" and place < len(data):
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif fault == "number":
            number = draw(st.sampled_from([0, 1, 2**16 - 1, 2**31, 2**32 - 1]))
            data[place : place + 4] = struct.pack("<I", number)
        elif fault == "insert":
            data[place:place] = word
        elif fault == "replace":
            data[place : place + len(word)] = word
        elif fault == "cut":
            del data[place:]
        elif fault == "remove":
            del data[place : place + draw(st.integers(1, 40))]
        elif fault == "append":
            data += word
    return bytes(data)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name in ("label", "columns"):
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy(ARRAYS[name]), method)
    return file.getvalue()


def read(path, staged):
    """Return the reader, and the values of each feature; None if the file is refused."""
    staged.mkdir()
    try:
        reader = Arrays.open([str(path)]).stage(staged)
        listing = reader.listing()
        outcomes = reader.read(listing.rows(np.arange(listing.num_examples)), listing.schema)
    except (InputError, OptionsError):
        return None
    columns = zip(*(outcome.values for outcome in outcomes), strict=True)
    return reader, dict(zip(listing.schema.names, map(list, columns), strict=True))


def check(data: bytes, name: str, folder) -> None:
    path = folder / name
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = read(path, folder / "staged")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < ALLOWED_BYTES + 50 * len(data)
    copied = sum(file.stat().st_size for file in (folder / "staged").rglob("*") if file.is_file())
    assert copied <= len(data) * 1032
    if got is None:
        return
    reader, values = got
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            loaded = np.load(path, allow_pickle=False)
            wanted = dict(loaded) if name.endswith(".npz") else {path.stem: loaded}
        except (ValueError, OSError, EOFError, SyntaxError, zipfile.BadZipFile):
            return
    for feature, column in reader.arrays.items():
        array = wanted[feature]
        taken = column.take(np.arange(column.num_rows))
        assert taken.dtype == array.dtype
        assert taken.shape == array.shape
        assert taken.tobytes() == np.ascontiguousarray(array).tobytes()
        assert len(values[feature]) == len(array)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.sampled_from(sorted(ARRAYS)).flatmap(lambda name: damages(npy(ARRAYS[name]))))
def test_a_damaged_npy_is_read_as_numpy_reads_it_or_refused(data, tmp_path_factory):
    check(data, "x.npy", tmp_path_factory.mktemp("damage"))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]).flatmap(lambda how: damages(npz(how)))
)
def test_a_damaged_npz_is_read_as_numpy_reads_it_or_refused(data, tmp_path_factory):
    check(data, "x.npz", tmp_path_factory.mktemp("damage"))


@pytest.mark.parametrize("name", ARRAYS)
def test_without_damage_the_same_file_is_read(name, tmp_path):
    check(npy(ARRAYS[name]), "x.npy", tmp_path)
    assert read(tmp_path / "x.npy", tmp_path / "again") is not None
