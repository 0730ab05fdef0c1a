"""The kinds of source: one table, from which the command line and manifests make sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tfshards.schemas import OptionsError


@dataclass(frozen=True)
class Kind:
    """A kind of source.

    Attributes:
        name: name on the command line, and in manifests as the option ``source``.
        where: module and name of the class, which is imported when it is needed: it may need Arrow. The class
            is a dataclass, whose described fields are the arguments of a build. Its class method
            ``from_recorded`` makes a source of new inputs, without class names, from the options of a build,
            as manifests hold them, the paths of the inputs, and the schema of the dataset.
        help: line on this kind in the help of ``build`` and ``plan``.
        can_reject: whether single inputs can be rejected, so that ``max_rejected`` has an effect.
    """

    name: str
    where: str
    help: str
    can_reject: bool = True

    @property
    def source(self) -> Any:  # noqa: ANN401 -- a class, see ``where``
        """The class of the sources."""
        module, _, name = self.where.partition(":")
        return getattr(import_module(module), name)


_KINDS = (
    Kind("images", "tfshards.prep.sources.folder:ImageFolder", "A folder of images"),
    # an invalid array fails the build instead
    Kind(
        "arrays",
        "tfshards.prep.sources.arrays:Arrays",
        "NumPy arrays in .npy or .npz files",
        can_reject=False,
    ),
    Kind(
        "table",
        "tfshards.prep.sources.table:Table",
        "Rows of CSV, TSV, JSON Lines or Parquet files, with the images that they name",
    ),
    Kind(
        "coco",
        "tfshards.prep.sources.coco:Coco",
        "Images with boxes, keypoints and polygons in annotation files of COCO",
    ),
    Kind(
        "yolo",
        "tfshards.prep.sources.yolo:Yolo",
        "Images with boxes, keypoints and polygons in text files of YOLO",
    ),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}


def check_num_inputs(inputs: Sequence[str], most: int, allowed: str) -> None:
    """Raise OptionsError if there are no inputs or more than ``most``; ``allowed`` names what to give."""
    if not 1 <= len(inputs) <= most:
        raise OptionsError(f"the inputs are {', '.join(map(repr, inputs)) or 'missing'}; give {allowed}")
