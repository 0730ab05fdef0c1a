"""Folders of images as a source kind."""

from __future__ import annotations

from collections.abc import Sequence

from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.sources.images.folder import ImageFolder
from tfshards.prep.sources.kind import Recorded, SourceKind, check_num_inputs
from tfshards.schemas.option import recorded_values


class _RestoredFolder(ImageFolder):
    """The source of a dataset, for which no choices are left to report."""

    _is_restored = True


def _restore(recorded: Recorded, inputs: Sequence[str]) -> ImageFolder:
    check_num_inputs(inputs, 1, "one folder of images")
    values = recorded_values(ImageFolder, recorded.options)
    values.setdefault("follow_links", recorded.is_grown and recorded.follow_links)
    return _RestoredFolder(
        inputs[0],
        ImageOptions(**recorded_values(ImageOptions, recorded.options)),
        class_names=recorded.class_names,
        # the build may have allowed it, and new images need not be of every class or split
        allow_missing_classes=recorded.class_names is not None or bool(values.get("split_folders")),
        **values,
    )


IMAGES = SourceKind(
    name="images",
    help="a folder of images",
    source_help="folder that holds class folders, split folders or images",
    group_help=(
        "keep examples of one group in one split: 'folder' groups by folder, a regular expression by its "
        "one (group), which is searched for in the key"
    ),
    records=lambda: (ImageFolder, ImageOptions),
    make=lambda source, class_names, of_folder, of_images: ImageFolder(
        source, ImageOptions(**of_images), class_names=class_names, **of_folder
    ),
    restore=_restore,
)
