"""The manifest of a dataset, and its text."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tfshards.prep.views.files import INFO_NAME
from tfshards.schemas import Manifest, read_manifest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import any_path
from tfshards.schemas.summary import escaped


@dataclass(frozen=True, repr=False)
class Info(Manifest):
    """The manifest of a dataset, with what its text shows in addition.

    Attributes:
        path: folder of the dataset.
    """

    path: str = ""

    def __repr__(self) -> str:
        """Return the text that ``tfshards info`` prints."""
        text = super().__repr__()
        if f"{self.folder}/{INFO_NAME}" not in self.views:
            return text
        path = escaped(str(any_path(self.path) / self.folder))
        return f'{text}\nTensorFlow Datasets: tfds.builder_from_directory("{path}")'

    def to_json(self) -> dict[str, Json]:
        """Return the manifest as JSON values."""
        return {name: value for name, value in super().to_json().items() if name != "path"}


def info(dataset: str | os.PathLike[str]) -> Info:
    """Show the splits, features, classes and totals of a dataset.

    Args:
        dataset: folder of the dataset, or its URL.

    Returns:
        The manifest.

    Raises:
        InputError: it is not a dataset.
        FormatError: its manifest cannot be read.
    """
    return Info(**vars(read_manifest(dataset)), path=os.fspath(dataset))
