"""The table of source kinds: a new kind needs one file or folder here, and one row in this table."""

from __future__ import annotations

from collections.abc import Callable

from tfshards.prep.sources.kind import SourceKind

# Kinds are imported when they are used: they need Pillow and Arrow, which an installation that only reads
# datasets does not have.


def _images() -> SourceKind:
    from tfshards.prep.imaging.options import ImageOptions
    from tfshards.prep.sources.folder import ImageFolder

    return SourceKind(
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
        restore=ImageFolder.from_recorded,
    )


def _arrays() -> SourceKind:
    from tfshards.prep.sources.arrays.kind import ARRAYS

    return ARRAYS


def _table() -> SourceKind:
    from tfshards.prep.sources.tables.kind import TABLE

    return TABLE


KINDS: dict[str, Callable[[], SourceKind]] = {"images": _images, "arrays": _arrays, "table": _table}
