"""The table of views: files that other tools, or people, read instead of the manifest."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tfshards.prep.views.labels import write_labels
from tfshards.prep.views.requested import refresh_requested
from tfshards.prep.views.tfds import tfds_note, write_tfds_view
from tfshards.schemas import Manifest, Problem
from tfshards.schemas.storage import AnyPath


class View(NamedTuple):
    """A view of a dataset.

    Attributes:
        tool: the tool that reads the files.
        write: writes the files that follow from a manifest into a folder, and removes those that do not
            apply; returns why the tool cannot read the dataset.
    """

    tool: str
    write: Callable[[Manifest, AnyPath], list[Problem]]


VIEWS = (
    View("people", write_labels),
    View("TensorFlow Datasets", write_tfds_view),
    View("Croissant, TensorFlow Metadata", refresh_requested),
)


def write_views(manifest: Manifest, root: AnyPath) -> list[str]:
    """Write every view of the dataset in ``root``; return a message for each tool that cannot read it, or not
    in the usual way.
    """
    note = tfds_note(manifest, root)
    return [
        *(
            f"{view.tool} cannot read this dataset: {problem}"
            for view in VIEWS
            for problem in view.write(manifest, root)
        ),
        *([note] if note else []),
    ]
