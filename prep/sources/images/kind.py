"""Folders of images as a source kind: their arguments, and how a build from one is restored."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import cast

from tfshards.prep.sources.image_arguments import (
    add_image_arguments,
    image_options_from,
    recorded_image_flags,
    restored_images,
)
from tfshards.prep.sources.images.folder import ImageFolder
from tfshards.prep.sources.kind import Recorded, SourceKind, check_num_inputs
from tfshards.schemas import OptionsError
from tfshards.schemas.json_reader import Json


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", help="folder that holds class folders, split folders or images"
    )
    parser.add_argument(
        "--splits",
        dest="split_folders",
        action="append",
        metavar="SPLIT=FOLDER,...",
        help="folder of each split, such as train=Train,test=holdout; '' if every folder is a class "
        "(default: the folders are splits if all are named train, val, test or the like)",
    )
    for name, text in (("include", "take only images"), ("exclude", "skip images")):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="PATTERN",
            help=f"{text} whose path relative to SOURCE matches, such as '**/*.jpg': * within a folder, ** "
            "across folders; repeatable",
        )
    parser.add_argument(
        "--mask-dir",
        metavar="FOLDER",
        help="folder of masks, relative to SOURCE, with the same folders and names as the images "
        "(default: masks next to images, if there are both)",
    )
    add_image_arguments(parser)


def _from_arguments(options: argparse.Namespace, class_names: Sequence[str] | None) -> ImageFolder:
    return ImageFolder(
        options.source,
        image_options_from(options),
        class_names=class_names,
        follow_links=options.follow_links,
        split_folders=None if options.split_folders is None else _split_folders(options.split_folders),
        mask_dir=options.mask_dir,
        include=options.include,
        exclude=options.exclude,
    )


def _split_folders(texts: Sequence[str]) -> dict[str, str]:
    """Return the folder of each split in texts such as ``train=Train,test=holdout``."""
    folders: dict[str, str] = {}
    for text in texts:
        for part in filter(None, text.split(",")):
            split, equals, folder = part.partition("=")
            if not equals or split in folders:
                raise OptionsError(
                    f"split_folders={text!r} must be SPLIT=FOLDER,..., such as train=Train,test=holdout, "
                    "with each split given once"
                )
            folders[split] = folder.rstrip("/")
    return folders


class _RestoredFolder(ImageFolder):
    """The source of a dataset, for which no choices are left to report."""

    _is_restored = True


def _restore(recorded: Recorded, inputs: Sequence[str]) -> ImageFolder:
    check_num_inputs(inputs, 1, "one folder of images")
    options = recorded.options
    follow_links = options.get("follow_links", recorded.is_grown and recorded.follow_links)
    split_folders = cast("Mapping[str, str] | None", options.get("split_folders"))
    return _RestoredFolder(
        inputs[0],
        restored_images(options),
        class_names=recorded.class_names,
        follow_links=bool(follow_links),
        # the build may have allowed it, and new images need not be of every class or split
        allow_missing_classes=recorded.class_names is not None or bool(split_folders),
        split_folders=split_folders,
        mask_dir=cast("str | None", options.get("mask_dir")),
        include=cast("list[str]", options.get("include", [])),
        exclude=cast("list[str]", options.get("exclude", [])),
    )


def _recorded(recorded: Recorded, _: Sequence[str]) -> dict[str, Json]:
    options = recorded.options
    flags = {name: options.get(name.replace("-", "_")) for name in ("include", "exclude", "mask-dir")}
    # an empty text makes every folder a class
    splits = options.get("split_folders") or ("" if "split_folders" in options else None)
    return {
        **recorded_image_flags(options),
        **flags,
        "splits": splits,
        "follow-links": options.get("follow_links"),
    }


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
    recorded=_recorded,
)
