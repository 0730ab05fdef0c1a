"""``labels.txt``: the class names in label order, for people. The manifest has the names themselves."""

from __future__ import annotations

from pathlib import Path

from tfshards.schemas import Manifest
from tfshards.schemas.manifest import write_atomically


def labels_text(class_names: tuple[str, ...]) -> str:
    """Return one line a name, with control characters and undecodable bytes as Python escapes."""
    return "".join(f"{escaped(name)}\n" for name in class_names)


def escaped(name: str) -> str:
    r"""Return ``name`` with backslashes, control characters and surrogates escaped, such as ``\n``."""
    return "".join(
        char if char.isprintable() and char != "\\" else char.encode("unicode_escape").decode("ascii")
        for char in name
    )


def write_labels(manifest: Manifest, root: Path) -> None:
    """Write ``labels.txt`` if its content differs; remove it if there are no class names."""
    path = root / "labels.txt"
    if not manifest.schema.class_names:
        path.unlink(missing_ok=True)
        return
    data = labels_text(manifest.schema.class_names).encode("utf-8")
    if not path.is_file() or path.read_bytes() != data:
        write_atomically(path, data)
