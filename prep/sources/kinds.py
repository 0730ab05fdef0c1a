"""The kinds of source: one table, from which the command line and manifests make sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

from tfshards.prep.imaging.options import JPEG_QUALITY, ImageOptions
from tfshards.prep.option import Record, recorded_values
from tfshards.prep.sources.base import Source
from tfshards.schemas import OptionsError, Schema


@dataclass(frozen=True)
class Recorded:
    """The source of a build, as a manifest records it, for a source of more inputs, or only of new ones.

    Attributes:
        schema: schema of the dataset.
        options: options of the build, as the manifest holds them.
        follow_links: whether to follow links if the manifest does not record whether the build did.
    """

    schema: Schema
    options: Mapping[str, Any]
    follow_links: bool

    @property
    def images(self) -> ImageOptions:
        """The options of images."""
        quality = self.options.get("quality", JPEG_QUALITY)
        return ImageOptions(**recorded_values(ImageOptions, self.options), usual_quality=quality)


@dataclass(frozen=True)
class Kind:
    """A kind of source.

    Attributes:
        name: name on the command line, and in manifests as the option ``source``.
        where: module and name of the class, which is imported when it is needed: it may need Arrow. The class
            is a dataclass, whose fields with an ``option`` are flags. It is called with SOURCE and these,
            ``class_names``, and ``images`` if there is such a field. Its class method ``from_recorded`` makes
            a source of new inputs, without class names, from the record of a build.
        help: line on this kind in the help of ``build`` and ``plan``.
        source_help, group_help: help texts of SOURCE and of ``--group-by``.
        takes_several: whether SOURCE may be several arguments, which are passed on as a list.
        can_reject: whether single inputs can be rejected, so that ``--max-rejected`` applies.
    """

    name: str
    where: str
    help: str
    source_help: str
    group_help: str = "keep rows with equal values in this column in one split"
    takes_several: bool = False
    can_reject: bool = True

    @property
    def source(self) -> Any:  # noqa: ANN401 -- a class, see ``where``
        """The class of the sources."""
        module, _, name = self.where.partition(":")
        return getattr(import_module(module), name)

    @property
    def records(self) -> tuple[type[Record], ...]:
        """The dataclasses whose options are those of this kind."""
        has_images = any(field.name == "images" for field in fields(self.source))
        return (self.source, ImageOptions) if has_images else (self.source,)

    def make(self, source: Any, class_names: Sequence[str] | None, *given: Mapping[str, Any]) -> Source:  # noqa: ANN401
        """Return a source from SOURCE, class names, and the given options of each of ``records``."""
        images = {"images": ImageOptions(**given[1])} if len(given) > 1 else {}
        found: Source = self.source(source, class_names=class_names, **images, **given[0])
        return found


_KINDS = (
    Kind(
        "images",
        "tfshards.prep.sources.folder:ImageFolder",
        "a folder of images",
        "folder that holds class folders, split folders or images",
        "keep examples of one group in one split: 'folder' groups by folder, a regular expression by its one "
        "(group), which is searched for in the key",
    ),
    Kind(
        "arrays",
        "tfshards.prep.sources.arrays:Arrays",
        "NumPy arrays in .npy or .npz files",
        "array: NAME=FILE.npy, FILE.npy (the file's stem is the name) or FILE.npz (all its arrays); arrays "
        "named like x_train and x_test are splits",
        "keep rows with equal values in this array in one split",
        takes_several=True,
        # an invalid array fails the build instead
        can_reject=False,
    ),
    Kind(
        "table",
        "tfshards.prep.sources.table:Table",
        "rows of CSV, TSV, JSON Lines or Parquet files, with the images that they name",
        "CSV, TSV, JSON Lines or Parquet file, a folder with metadata.csv, .jsonl or .parquet, or a folder "
        "or pattern of files of one suffix",
    ),
    Kind(
        "coco",
        "tfshards.prep.sources.coco:Coco",
        "images with boxes, keypoints and polygons in annotation files of COCO",
        "annotation file such as instances_train2017.json, or a folder with annotations/instances_*.json",
    ),
    Kind(
        "yolo",
        "tfshards.prep.sources.yolo:Yolo",
        "images with boxes, keypoints and polygons in text files of YOLO",
        "data.yaml of Ultralytics, or a folder of images with a text file for each",
    ),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}


def check_num_inputs(inputs: Sequence[str], most: int, allowed: str) -> None:
    """Raise OptionsError if there are no inputs or more than ``most``; ``allowed`` names what to give."""
    if not 1 <= len(inputs) <= most:
        raise OptionsError(f"the inputs are {', '.join(map(repr, inputs)) or 'missing'}; give {allowed}")
