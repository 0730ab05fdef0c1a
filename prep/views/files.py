"""The files of a build that other tools, or people, read instead of the manifest."""

from __future__ import annotations

from tfshards.prep.views.tfds import tfds_files, tfds_problems
from tfshards.schemas import Manifest
from tfshards.schemas.storage import AnyPath
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


def view_notes(manifest: Manifest, folder: AnyPath) -> list[str]:
    """Return why TensorFlow Datasets cannot read a build; nothing if other builds wrote some shards."""
    if any(not shard.path.startswith(f"{manifest.folder}/") for shard in manifest.shards):
        return []
    return [f"TensorFlow Datasets cannot read {folder}: {problem}" for problem in tfds_problems(manifest)]
