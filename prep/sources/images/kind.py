"""Folders of images as a source kind: their arguments, and how a build from one is restored."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tfshards.prep.sources.image_arguments import add_image_arguments, image_options_from, restored_images
from tfshards.prep.sources.images.folder import ImageFolder
from tfshards.prep.sources.kind import Recorded, SourceKind, check_num_inputs


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", help="folder that holds class folders, split folders or images"
    )
    add_image_arguments(parser)


def _from_arguments(options: argparse.Namespace, class_names: Sequence[str] | None) -> ImageFolder:
    return ImageFolder(
        options.source,
        image_options_from(options),
        class_names=class_names,
        follow_links=options.follow_links,
    )


def _restore(recorded: Recorded, inputs: Sequence[str]) -> ImageFolder:
    check_num_inputs(inputs, 1, "one folder of images")
    follow_links = recorded.options.get("follow_links", recorded.is_grown and recorded.follow_links)
    return ImageFolder(
        inputs[0],
        restored_images(recorded.options),
        class_names=recorded.class_names,
        follow_links=bool(follow_links),
        # the build may have allowed it, and new images need not be of every class
        allow_missing_classes=recorded.class_names is not None,
    )


IMAGES = SourceKind(
    name="images",
    help="a folder of images",
    group_help=(
        "keep examples of one group in one split: 'folder' groups by folder, a regular expression by its "
        "one (group), which is searched for in the key"
    ),
    add_arguments=_add_arguments,
    from_arguments=_from_arguments,
    restore=_restore,
)
