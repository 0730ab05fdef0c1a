"""Write the files of an adopted dataset: indexes, labels, ``labels.txt``, and finally the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from tfshards.prep.views.labels import LABELS_NAME, labels_text
from tfshards.prep.writing.shard_names import data_files
from tfshards.schemas import Manifest
from tfshards.schemas.build_area import foreign, write_files
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.manifest_file import write_manifest
from tfshards.schemas.storage import AnyPath, RemoteStatus
from tfshards.schemas.storage.untrusted import INDEX, read_whole


def write_adopted(
    root: AnyPath,
    manifest: Manifest,
    companions: Mapping[str, bytes],
    current: Manifest | None,
    replaced: RemoteStatus | None = None,
) -> bool:
    """Write those files of the dataset that do not exist yet; return whether any was written.

    Args:
        root: the folder of the files.
        manifest: the new manifest.
        companions: the content of the index and the labels of each shard, by path.
        current: the existing manifest, or None.
        replaced: its version, if it is in an object store.

    Raises:
        InputError: an index or a file of labels would replace a file that tfshards did not write.
        FileExistsError: another process has written a manifest to the store.
        ChangedError: another process has replaced the manifest in the store.
        OSError: a file cannot be written; the existing manifest is unchanged.
    """
    files = {**companions, **({LABELS_NAME: _labels(manifest)} if LABELS_NAME in manifest.views else {})}
    changed = {path: content for path, content in files.items() if _content(root / path) != content}
    named = {LABELS_NAME, *(data_files(current) if current else ())}
    for path in changed:
        if path not in named and _content(root / path) is not None:
            raise foreign(root / path)
    write_files(root, changed)
    is_new = not current or current.to_text() != manifest.to_text()
    if is_new:
        write_manifest(manifest, root, replaced)
        _remove_old(root, manifest, current)
    return is_new or bool(changed)


def with_labels(root: AnyPath, manifest: Manifest, current: Manifest | None) -> Manifest:
    """Return the manifest that lists ``labels.txt``, if classes have names and the file may be written."""
    if not manifest.schema.class_names or labels_are_foreign(root, current):
        return manifest
    return replace(manifest, views={LABELS_NAME: bytes_digest(_labels(manifest))})


def labels_are_foreign(root: AnyPath, current: Manifest | None) -> bool:
    """Return whether ``labels.txt`` exists and was not derived from the existing manifest."""
    found = _content(root / LABELS_NAME)
    return found is not None and found != _labels(current)


def _content(path: AnyPath) -> bytes | None:
    with suppress(FileNotFoundError):
        return read_whole(path, INDEX)
    return None


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
        (root / LABELS_NAME).unlink(missing_ok=True)
    kept = {path for shard in manifest.shards for path in shard.companion_digests}
    for path in {path for shard in current.shards for path in shard.companion_digests} - kept:
        (root / path).unlink(missing_ok=True)
