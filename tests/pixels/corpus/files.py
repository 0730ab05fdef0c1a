"""The table of nasty files: the name of each kind, its bytes, and the expected result of a build."""

from tests.pixels.corpus import bitmaps, jpegs, lies, moving, pngs, tiffs
from tests.pixels.corpus.kind import Kind

_FAMILIES = (jpegs, pngs, moving, tiffs, bitmaps, lies)

KINDS: dict[str, Kind] = {name: kind for family in _FAMILIES for name, kind in family.KINDS.items()}


def file_name(name: str) -> str:
    """Return the path of the file of a kind in the folder: its key in the dataset."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in name)
    return plain + KINDS[name].suffix
