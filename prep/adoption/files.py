"""Write the files of an adopted dataset: indexes, labels, ``labels.txt``, and finally the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tfshards.prep.building.output_state import temporary_files
from tfshards.prep.views.labels import labels_text
from tfshards.schemas import Manifest
from tfshards.schemas.files import write_atomically
from tfshards.schemas.manifest_file import write_manifest
from tfshards.schemas.storage import AnyPath, RemoteStatus

_LABELS = "labels.txt"


def write_adopted(
    root: AnyPath,
    manifest: Manifest,
    companions: Mapping[str, bytes],
    current: Manifest | None,
    replaced: RemoteStatus | None = None,
) -> bool:
    """Write those files of the dataset that do not exist yet; return whether any was written.

    A ``labels.txt`` that tfshards did not write stays as it is.

    Args:
        root: the folder of the files.
        manifest: the new manifest.
        companions: the content of the index and the labels of each shard, by path.
        current: the existing manifest, or None.
        replaced: its version, if it is in an object store.

    Raises:
        FileExistsError: another process has written a manifest to the store.
        ChangedError: another process has replaced the manifest in the store.
        OSError: a file cannot be written; the existing manifest is unchanged.
    """
    written = [_write(root / path, content) for path, content in companions.items()]
    written.append(_write_labels(root, manifest, current))
    if not current or current.to_text() != manifest.to_text():
        write_manifest(manifest, root, replaced)
        written.append(True)
        _remove_old(root, manifest, current)
    folders = {root, *((root / path).parent for path in companions)}
    for folder in (each for each in folders if isinstance(each, Path)):
        # left by a run that was killed
        for path in temporary_files(folder):
            path.unlink()
    return any(written)


def labels_are_foreign(root: AnyPath, current: Manifest | None) -> bool:
    """Return whether ``labels.txt`` exists and was not derived from the existing manifest."""
    path = root / _LABELS
    return path.exists() and path.read_bytes() != _labels(current)


def _write(path: AnyPath, content: bytes) -> bool:
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, content)
    return True


def _write_labels(root: AnyPath, manifest: Manifest, current: Manifest | None) -> bool:
    if not manifest.schema.class_names or labels_are_foreign(root, current):
        return False
    return _write(root / _LABELS, _labels(manifest))


def _labels(manifest: Manifest | None) -> bytes:
    return labels_text(manifest.schema.class_names).encode("utf-8") if manifest else b""


def _remove_old(root: AnyPath, manifest: Manifest, current: Manifest | None) -> None:
    """Remove the files of the previous manifest that are not in the new one."""
    if not current:
        return
    if (
        not manifest.schema.class_names
        and current.schema.class_names
        and not labels_are_foreign(root, current)
    ):
        (root / _LABELS).unlink(missing_ok=True)
    kept = {path for shard in manifest.shards for path in shard.companion_digests}
    for path in {path for shard in current.shards for path in shard.companion_digests} - kept:
        (root / path).unlink(missing_ok=True)
