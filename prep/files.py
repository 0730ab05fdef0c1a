"""Files of a dataset as a whole: their digest, and the room that they need."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from tfshards.schemas import InputError
from tfshards.schemas.sizes import size

_BLOCK = 1 << 20


def file_digest(path: Path) -> str:
    """Return the digest of a file as the manifest holds it."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def bytes_digest(data: bytes) -> str:
    """Return the digest of a file that holds ``data``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def system_fault(out: Path, error: OSError) -> str:
    """Return a line for people on the error that ended a build into ``out``, from outside of it."""
    # of a renaming that fails it is the target that matters
    named = next((name for name in (error.filename2, error.filename) if isinstance(name, str)), out)
    why = error.strerror or error
    return f"{named}: {why}; once that is mended, the same command goes on where it ended"


def require_space(folder: Path, num_bytes: int, what: str) -> None:
    """Raise InputError if the file system of ``folder`` has fewer than ``num_bytes`` free."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise InputError(
            f"{folder}: {what} needs about {size(num_bytes)}, and {size(free)} are free; "
            "make room or choose an output elsewhere"
        )
