"""The view ``labels.txt``: the class names in label order for people; programs read the manifest."""

from __future__ import annotations

from tfshards.schemas import Manifest
from tfshards.schemas.summary import escaped

LABELS_NAME = "labels.txt"


def labels_text(class_names: tuple[str, ...]) -> str:
    """Return one line for each name, with control characters and undecodable bytes as Python escapes."""
    return "".join(f"{escaped(name)}\n" for name in class_names)


def labels_files(manifest: Manifest) -> dict[str, bytes]:
    """Return the content of ``labels.txt`` by its name; empty if there are no class names."""
    names = manifest.schema.class_names
    return {LABELS_NAME: labels_text(names).encode("utf-8")} if names else {}
