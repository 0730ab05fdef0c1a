"""The roles that the user assigns to columns of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import get_args

from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.sources.formats import check_formats, parse_formats, parse_pairs
from tfshards.prep.sources.tables.annotations import Segmentations
from tfshards.prep.sources.tables.coordinates import NONE
from tfshards.schemas import OptionsError
from tfshards.schemas.coordinates import BOX_FORMATS, POINT_FORMATS
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import check_choices, check_strings, option

# The field of each role that is not a format.
_FIELDS = {"image": "images", "mask": "masks", "drop": "drop", "label": "label", "split": "split"}


@dataclass(frozen=True)
class ColumnRoles:
    """The roles that the user assigns to columns; the names of other columns determine their roles.

    Attributes:
        images: columns of image paths; each becomes a feature with the name of the column. Or a template of
            paths such as ``train/{id}.jpg``, in which braces name columns; its feature is ``image``. The
            columns in it are stored as well; ``{id:06d}`` writes an integer with six digits.
        masks: columns of paths of masks, whose pixel values are classes, or a template, whose feature is
            ``mask``.
        label: column of classes; by default ``label``, if it exists. An empty string is none.
        split: column of split names; by default ``split``, if it exists. If it is a column of image paths,
            as by default if their first folders are two or more of train, val, test and the like, these name
            the splits. An empty string is none of these.
        drop: columns that are not stored; the name of a struct stands for all of its fields.
        no_images: store paths of images as text, and encoded images as bytes, unless their column is called
            ``file_name`` or ``NAME_file_name``, or is among ``images`` or ``masks``.
        boxes: format of the boxes in a column: "xywh" (left, top, width, height), "xyxy" (left, top, right,
            bottom), "cxcywh" (center, width, height) or "yxyx", in pixels, or as fractions of the image with
            "-normalized". A column has 4 numbers, or a list of 4 numbers for each box. Four columns such as
            "xmin,ymin,xmax,ymax" become the feature ``boxes`` of shape ``(4,)``, or ``(None, 4)`` if they
            have lists. "none" declares that four numbers are not a box.
        keypoints: format of the keypoints in a column, "xy" or "xyv" (with the visibility; 0 is not labeled),
            in pixels, or with "-normalized". Several columns become the feature ``keypoints``.
        outside_boxes: what to do about boxes and keypoints that reach out of their image by more than 1 % of
            its side, or 1 pixel: "reject" the image, "clip" them to it, or "keep" them.
        boxes_in: whether boxes and keypoints refer to the pixels in the "file" or to the "upright" image; by
            default the columns ``width`` and ``height`` decide, if they exist, and images that are turned are
            rejected if these do not.
        label_separator: what separates the classes in a text of the label column, such as "|". An empty text
            is no class. An empty string states that each text is one class.
        column: role of columns that the other options do not name: "image", "mask", "label", "split", "drop",
            or a format of ``boxes`` or ``keypoints``. They become the values of these options.
        segmentations: how the segmentations of COCO and YOLO are stored; by default they are left out.
            "polygons" moves with the image: ``polygons/points`` has the points of all, shape ``(None, 2)``,
            ``polygons/lengths`` the number of points of each, and ``polygons/object`` the number in
            ``objects/index`` of the object to which it belongs. "text" is the JSON of each object of COCO,
            polygons or RLE, in ``objects/segmentation``; images that the build turns or resizes are refused.

    Raises:
        OptionsError: ``images``, ``masks`` or ``drop`` is not a list of strings, or a format is not allowed.
    """

    images: tuple[str, ...] = option(
        (),
        "column of image paths or images, in addition to file_name, NAME_file_name and image, or a template "
        "of paths in which braces name columns, such as 'train/{id}.jpg'",
        flag="image",
        metavar="COLUMN",
        is_repeatable=True,
    )
    masks: tuple[str, ...] = option(
        (),
        "column of mask paths; the pixel values of masks are never interpolated",
        flag="mask",
        metavar="COLUMN",
        is_repeatable=True,
    )
    label: str | None = option(
        None,
        "column of classes: text, integers, or lists of these; '' for none",
        metavar="COLUMN",
        default_text="label, if it exists",
    )
    split: str | None = option(
        None,
        "column that names the split of each row, or of image paths whose first folder names it; '' for none",
        flag="split-column",
        metavar="COLUMN",
        default_text="split, if it exists, or the folders if they are train, test, ...",
    )
    drop: tuple[str, ...] = option((), "column that is not stored", metavar="COLUMN", is_repeatable=True)
    no_images: bool = option(
        False, "store image paths as text, and images as bytes, in columns that are not declared"
    )
    boxes: Mapping[str, str] = option(
        {},
        "column of boxes, or four columns such as xmin,ymin,xmax,ymax, and their format: xywh, xyxy, cxcywh "
        "or yxyx, in pixels, or fractions of the image with -normalized; none for numbers that are not boxes",
        metavar="COLUMN=FORMAT",
        is_repeatable=True,
        parse=parse_formats,
    )
    keypoints: Mapping[str, str] = option(
        {},
        "column of keypoints, or several columns, and their format: xy or xyv, which may have -normalized",
        metavar="COLUMN=FORMAT",
        is_repeatable=True,
        parse=parse_formats,
    )
    outside_boxes: Outside = option(
        "reject",
        "reject images with boxes or keypoints outside of them, clip these to the image, or keep them",
        choices=get_args(Outside),
    )
    boxes_in: Reference | None = option(
        None,
        "whether boxes and keypoints refer to the pixels in the file, or to the image that is turned upright "
        "by its EXIF tag",
        choices=get_args(Reference),
        default_text="columns width and height decide; turned images are rejected without them",
    )
    label_separator: str | None = option(
        None,
        "text between the classes in a text of the label column, such as '|'; '' if each text is one class",
        metavar="TEXT",
    )
    column: Mapping[str, str] = option(
        {},
        "column and its role: image, mask, label, split, drop, or a format of boxes or keypoints",
        metavar="COLUMN=ROLE",
        is_repeatable=True,
        parse=partial(parse_pairs, "column-form"),
        recorded="never",
    )
    segmentations: Segmentations | None = option(
        None,
        "store segmentations of COCO and YOLO as polygons that move with their image, or of COCO as text",
        choices=get_args(Segmentations),
        default_text="left out",
    )

    def __post_init__(self) -> None:
        check_choices(self)
        self._expand_columns()
        check_formats("boxes", self.boxes, (*BOX_FORMATS, NONE))
        check_formats("keypoints", self.keypoints, POINT_FORMATS)
        for name in ("images", "masks", "drop"):
            check_strings(name, getattr(self, name))

    def _expand_columns(self) -> None:
        """Set the fields of the roles in ``column``, which is empty then."""
        check_formats("column", self.column, (*_FIELDS, *BOX_FORMATS, NONE, *POINT_FORMATS))
        for name, role in self.column.items():
            field = _FIELDS.get(role, "keypoints" if role in POINT_FORMATS else "boxes")
            held = getattr(self, field)
            named = {
                *self.images,
                *self.masks,
                *self.drop,
                *self.boxes,
                *self.keypoints,
                self.label,
                self.split,
            }
            if name in named or isinstance(held, str):
                raise OptionsError("column-roles-repeated", name=name)
            of_role: object = name
            if isinstance(held, Mapping):
                of_role = {**held, name: role}
            elif held is not None:
                of_role = (*held, name)
            object.__setattr__(self, field, of_role)
        object.__setattr__(self, "column", {})

    def recorded(self) -> dict[str, Json]:
        """Return what manifests record of the roles, except those that the columns of a dataset show."""
        found: dict[str, Json] = {
            "boxes": dict(sorted(self.boxes.items())),
            "keypoints": dict(sorted(self.keypoints.items())),
            "outside_boxes": None if self.outside_boxes == "reject" else self.outside_boxes,
            "boxes_in": self.boxes_in,
            "label_separator": self.label_separator,
            "segmentations": self.segmentations,
        }
        return {name: value for name, value in found.items() if value}
