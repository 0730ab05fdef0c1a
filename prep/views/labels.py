"""Write ``labels.txt``: the class names in label order for people; programs read them from the manifest."""

from __future__ import annotations

from tfshards.schemas import Manifest, Problem
from tfshards.schemas.files import write_atomically
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.summary import escaped


def labels_text(class_names: tuple[str, ...]) -> str:
    """Return one line for each name, with control characters and undecodable bytes as Python escapes."""
    return "".join(f"{escaped(name)}\n" for name in class_names)


def write_labels(manifest: Manifest, root: AnyPath) -> list[Problem]:
    """Write ``labels.txt`` if its content differs; remove it if there are no class names."""
    path = root / "labels.txt"
    if not manifest.schema.class_names:
        path.unlink(missing_ok=True)
        return []
    data = labels_text(manifest.schema.class_names).encode("utf-8")
    if not path.is_file() or path.read_bytes() != data:
        write_atomically(path, data)
    return []
