"""The files of a build that other tools, or people, read instead of the manifest."""

from __future__ import annotations

from tfshards.prep.views.tfds import tfds_files
from tfshards.schemas import Manifest
from tfshards.schemas.summary import escaped

LABELS_NAME = "labels.txt"


def view_files(manifest: Manifest) -> dict[str, bytes]:
    """Return the content of each of these files by its name in the folder of the build."""
    names = manifest.schema.class_names
    labels = {LABELS_NAME: labels_text(names).encode("utf-8")} if names else {}
    return {**labels, **tfds_files(manifest)}


def labels_text(class_names: tuple[str, ...]) -> str:
    """Return one line for each name, with control characters and undecodable bytes as Python escapes."""
    return "".join(f"{escaped(name)}\n" for name in class_names)
