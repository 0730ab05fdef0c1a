"""The table of views: files that other tools, or people, read instead of the manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from tfshards.prep.views.tfds import MARK, tfds_files, tfds_note, tfds_problems
from tfshards.schemas import Manifest, Problem
from tfshards.schemas.build_area import write_files
from tfshards.schemas.companions import OTHER_BYTES
from tfshards.schemas.files import bytes_digest, sync_directory
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import METADATA, read_whole
from tfshards.schemas.summary import escaped

LABELS_NAME = "labels.txt"


def labels_text(class_names: tuple[str, ...]) -> str:
    """Return one line for each name, with control characters and undecodable bytes as Python escapes."""
    return "".join(f"{escaped(name)}\n" for name in class_names)


def labels_files(manifest: Manifest) -> dict[str, bytes]:
    """Return the content of ``labels.txt`` by its name; empty if there are no class names."""
    names = manifest.schema.class_names
    return {LABELS_NAME: labels_text(names).encode("utf-8")} if names else {}


class View(NamedTuple):
    """A view of a dataset."""

    tool: str
    files: Callable[[Manifest], Mapping[str, bytes]]
    problems: Callable[[Manifest], list[Problem]]


VIEWS = (
    View("people", labels_files, lambda _: []),
    View("TensorFlow Datasets", tfds_files, tfds_problems),
)


def view_files(manifest: Manifest) -> dict[str, bytes]:
    """Return the content of the files of all views by path."""
    return {path: content for view in VIEWS for path, content in view.files(manifest).items()}


def view_notes(manifest: Manifest, root: AnyPath) -> list[str]:
    """Return a message for each tool that cannot read the dataset in ``root``, or not in the usual way."""
    note = tfds_note(manifest, root)
    problems = (
        f"{view.tool} cannot read this dataset: {problem}"
        for view in VIEWS
        for problem in view.problems(manifest)
    )
    return [*problems, *([note] if note else [])]


def with_views(manifest: Manifest) -> Manifest:
    """Return a manifest that lists the digests of its views."""
    files = view_files(manifest)
    return replace(manifest, views={path: bytes_digest(content) for path, content in files.items()})


def foreign_views(manifest: Manifest, root: AnyPath, known: Sequence[Manifest]) -> list[str]:
    """Return the paths of views of a new manifest at which there is a file of somebody else.

    The manifests of this dataset so far are ``known``; their views may be replaced.
    """
    return [path for path, state in _states(manifest, root, known).items() if state == "foreign"]


def refresh_views(
    manifest: Manifest, root: AnyPath, earlier: Sequence[Manifest], *, replaces_foreign: bool = False
) -> None:
    """Write the views of a dataset that are missing or stale, and remove those that no longer apply."""
    contents, states = view_files(manifest), _states(manifest, root, earlier)
    replaced = ("missing", "stale", *(["foreign"] if replaces_foreign else []))
    files = {
        path: contents[path]
        for path, digest in manifest.views.items()
        if states[path] in replaced and bytes_digest(contents.get(path, b"")) == digest
    }
    write_files(root, files)
    gone = [path for path, state in states.items() if state == "obsolete"]
    for path in gone:
        (root / path).unlink(missing_ok=True)
    for folder in sorted({(root / path).parent for path in gone}, key=str):
        # before the build area is removed, which shows that views may be stale
        sync_directory(folder)
    # folders of views, such as tfds/00000, from the innermost
    folders = {parent for path in gone for parent in (root / path).parents if root in parent.parents}
    for folder in sorted(folders, key=lambda folder: len(str(folder)), reverse=True):
        with suppress(OSError):
            folder.rmdir()


def view_problems(manifest: Manifest, root: AnyPath, earlier: Sequence[Manifest]) -> list[Problem]:
    """Return the problems of the views of the dataset in ``root``; see ``refresh_views``."""
    states = _states(manifest, root, earlier)
    return [Problem(path, _PROBLEMS[state]) for path, state in states.items() if state != "current"]


_State: TypeAlias = Literal["missing", "current", "stale", "obsolete", "foreign"]
_PROBLEMS: Mapping[_State, str] = {
    "missing": "is missing",
    "stale": "does not belong to this generation of the dataset",
    "obsolete": "does not belong to this generation of the dataset",
    "foreign": OTHER_BYTES,
}


def _states(manifest: Manifest, root: AnyPath, earlier: Sequence[Manifest]) -> dict[str, _State]:
    """Return what there is at the path of each view, and at those of obsolete ones of earlier generations."""
    ours: dict[str, set[str]] = {}
    for one in earlier:
        for path, digest in one.views.items():
            ours.setdefault(path, set()).add(digest)
    states = {path: _state(path, manifest, root, ours.get(path, set())) for path in manifest.views}
    for path in sorted({*ours} - {*manifest.views}):
        if _state(path, manifest, root, ours[path]) == "stale":
            states[path] = "obsolete"
    return states


def _state(path: str, manifest: Manifest, root: AnyPath, ours: set[str]) -> _State:
    """Return what there is at a path; ``ours`` are the digests of the view in other generations."""
    try:
        content = read_whole(root / path, METADATA)
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "foreign"
    digest, wanted = bytes_digest(content), manifest.views.get(path)
    # TFDS adds to it what it knows of the dataset, such as further file formats
    is_ours = f"{MARK} Build {manifest.build_id}.".encode("ascii") in content
    if wanted is not None and (digest == wanted or is_ours):
        return "current"
    return "stale" if digest in ours or MARK.encode("ascii") in content else "foreign"
