"""A folder of images: with class folders, with split folders, with both, or without folders."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.imaging.masks import Geometry
from tfshards.prep.imaging.options import ImageOptions, changed_images
from tfshards.prep.records.example import Values
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Rejected, Row
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.fetching import FetchedContent, FetchRequest, StartedRows
from tfshards.prep.sources.image_file import (
    checked_content,
    decoders_of,
    depth_warning,
    image_feature,
    mask_feature,
    mask_options,
)
from tfshards.prep.sources.images.layout import (
    FileTable,
    FolderRules,
    arrange,
    check_split_folders,
    unread_files,
)
from tfshards.prep.sources.images.masks import (
    find_mask_folders,
    folder_name,
    masks_of,
    pair_files,
    read_files,
)
from tfshards.prep.sources.keys import groups_of_keys, to_bytes
from tfshards.prep.sources.kind import Recorded, SourceKind, check_num_inputs
from tfshards.prep.sources.remote_tree import RemoteTree, Tree, tree_of
from tfshards.prep.sources.tree import check_patterns, choose_keys
from tfshards.schemas import InputError, OptionsError, Schema
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import (
    changed_values,
    check_instance,
    check_path,
    option,
    recorded_values,
    to_json,
)
from tfshards.schemas.reasons import Reason
from tfshards.schemas.storage import AnyPath, any_path, check_expanded, is_remote
from tfshards.schemas.storage.reader import NUM_REQUESTS

_MATCHING = "whose path relative to SOURCE matches, such as '**/*.jpg': * within a folder, ** across folders"


def _split_folders(texts: Sequence[str]) -> dict[str, str]:
    """Return the folder of each split in texts such as ``train=Train,test=holdout``."""
    folders: dict[str, str] = {}
    for text in texts:
        for part in filter(None, text.split(",")):
            split, equals, folder = part.partition("=")
            if not equals or split in folders:
                raise OptionsError("split-folders-form", text=text)
            folders[split] = folder.rstrip("/")
    return folders


@dataclass(frozen=True)
class ImageFolder:
    """A folder of image files; the key of an example is its path relative to the folder.

    The top-level folders are splits if all that hold images are named train, training, validation, valid,
    val, dev, test or testing, in any case; the names of the splits are in lower case. If no folder has such a
    name, they are classes, which are searched recursively. The classes of all splits are numbered in the
    sorted order of their names; in a split folder without class folders, examples have the label -1 if others
    have classes. Without class folders there are no labels.

    Attributes:
        root: the folder, or its URL, such as ``s3://bucket/photos``.
        images: how images are checked, converted and stored.
        class_names: class names in label order, which must be the names of the class folders; by default the
            sorted names of these folders.
        follow_links: follow links to folders, and to files outside the folder.
        allow_missing_classes: accept names in ``class_names``, and folders in ``split_folders``, that do not
            exist.
        split_folders: the folder of each split, such as ``{"train": "Train", "test": "holdout"}``; other
            folders are skipped. If empty, every folder is a class. By default the names of folders decide.
        include: patterns of keys, such as ``["**/*.jpg"]``, of which an image must match one. ``*`` matches
            within a folder, ``**`` across folders.
        exclude: patterns of keys of images to leave out.
        mask_dir: folder of the masks, relative to ``root``; by default ``masks`` next to ``images``, in
            ``root`` or in its split folders, if there are these two. The path of a mask in that folder is
            the path of its image in its folder, except for the suffix.

    Raises:
        OptionsError: a class name is repeated, the path of the folder is empty or a URL that is not of an
            object store, missing classes are allowed without names, or another argument is not allowed.
    """

    # whether a dataset, which has masks or has not, determines what "masks" next to "images" are
    _is_restored: ClassVar[bool] = False

    root: str | bytes | os.PathLike[str]
    images: ImageOptions = field(default_factory=ImageOptions)
    class_names: Sequence[str] | None = None
    follow_links: bool = option(False, "follow links to folders and out of the input folder")
    allow_missing_classes: bool = False
    split_folders: Mapping[str, str] | None = option(
        None,
        "folder of each split, such as train=Train,test=holdout; '' if every folder is a class",
        flag="splits",
        metavar="SPLIT=FOLDER,...",
        is_repeatable=True,
        parse=_split_folders,
        default_text="the folders are splits if all are named train, val, test or the like",
    )
    include: Sequence[str] = option(
        (),
        f"take only images {_MATCHING}",
        metavar="PATTERN",
        is_repeatable=True,
        to_json=lambda patterns: sorted(set(patterns)),
    )
    exclude: Sequence[str] = option(
        (),
        f"skip images {_MATCHING}",
        metavar="PATTERN",
        is_repeatable=True,
        to_json=lambda patterns: sorted(set(patterns)),
    )
    mask_dir: str | None = option(
        None,
        "folder of masks, relative to SOURCE, with the same folders and names as the images",
        metavar="FOLDER",
        default_text="masks next to images, if there are both",
    )

    def __post_init__(self) -> None:
        check_path("root", self.root)
        check_instance("images", self.images, ImageOptions)
        if not os.fspath(self.root):
            raise OptionsError("root-empty")
        any_path(self.root)
        if self.mask_dir and is_remote(self.mask_dir) and not is_remote(self.root):
            raise OptionsError("mask-dir-remote", mask_dir=self.mask_dir, root=self.root)
        check_class_names(self.class_names)
        check_expanded(self.mask_dir or "")
        if self.mask_dir is not None and not self.mask_dir:
            raise OptionsError("mask-dir-empty")
        check_split_folders(self.split_folders)
        check_patterns("include", self.include)
        check_patterns("exclude", self.exclude)
        if self.allow_missing_classes and self.class_names is None and not self.split_folders:
            raise OptionsError("allow-missing-useless")

    def stage(self, folder: Path, *, preview: bool = False) -> ImageFolder:
        """Return the source itself, since its content is in files."""
        return self

    def location(self) -> AnyPath:
        """Return the folder."""
        return any_path(os.fsdecode(self.root))

    def with_class_names(self, names: Sequence[str]) -> ImageFolder:
        """Return the source with these class names, unless it has its own; some may have no folder."""
        if self.class_names is not None:
            return self
        return replace(self, class_names=names, allow_missing_classes=True)

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        # which images are accepted, and how they are converted, depends on the versions of the decoders
        decoders = decoders_of(self.images, has_masks=self.mask_dir is not None)
        chosen = to_json(self)
        if self.mask_dir is not None:
            chosen["mask_dir"] = os.fsdecode(folder_name(self._tree(), self.mask_dir))
        return {"source": "images", **self.images.to_json(), **chosen, **decoders}

    def listing(self) -> Listing:
        """Return the listing, from the names, sizes and modification times of the files.

        Raises:
            InputError: the folder is missing or cannot be read, or holds no images.
        """
        tree = self._tree()
        skipped: Counter[str] = Counter()
        try:
            found = FileTable.of(tree.images(skipped)).by_key()
            return self._listing(tree, found, skipped)
        except OSError as error:
            raise InputError(
                "unreadable", path=os.fsdecode(error.filename or tree.root), why=error.strerror
            ) from None

    def _listing(self, tree: Tree, found: FileTable, skipped: Counter[str]) -> Listing:
        folders = find_mask_folders(tree, self.mask_dir, self.split_folders)
        # patterns choose images; their masks follow
        images = found.keys if folders is None else [key for key in found.keys if not folders.is_mask(key)]
        excluded, warnings = choose_keys(images, self.include, self.exclude)
        if images and len(excluded) == len(images):
            raise InputError("patterns-leave-none", *warnings, given=self.location(), num_images=len(images))
        if excluded:
            skipped["excluded"] += len(excluded)
            found = found.take(np.flatnonzero([key not in excluded for key in found.keys]))
        if not len(found):
            listed = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
            seen = f" (skipped: {listed})" if skipped else ""
            known = ", ".join(sorted(suffix.decode() for suffix in SUFFIXES))
            raise InputError(
                "folder-no-images", *unread_files(tree), given=self.location(), seen=seen, known=known
            )
        features = [image_feature("image", self.images)]
        if folders is not None:
            features.append(mask_feature("mask", self.images))
            files, pairing = pair_files(tree, folders, [*found], skipped)
            found = FileTable.of(file._replace(key=folders.path(file.key)) for file in files)
            warnings += pairing
            if self.mask_dir is None and not self._is_restored:
                warnings.append(
                    "'masks' next to 'images' is taken for their masks, the feature 'mask'; split_folders={} "
                    "takes both for classes"
                )
        listing = arrange(
            tree,
            found,
            tree.folders if folders is None else partial(folders.folders, tree),
            FolderRules(self.class_names, self.allow_missing_classes, self.split_folders),
            features,
            skipped,
        )
        keys = listing.keys if folders is None else [folders.key(path) for path in listing.keys]
        deep = depth_warning(tree, keys, self.images)
        return replace(listing, keys=keys, warnings=(*warnings, *listing.warnings, *deep))

    @property
    def num_in_flight(self) -> int:
        """The number of requests to make at the same time; 0 for a folder on a disk."""
        return NUM_REQUESTS if is_remote(self.root) else 0

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return the image, its mask, label and key of each row, or why it is rejected."""
        return self.start(rows, schema).result()

    def start(self, rows: Sequence[Row], schema: Schema) -> StartedRows[list[tuple[bytes, FetchedContent]]]:
        """Start to read rows; requests are made for a folder of objects."""
        tree, most = self._tree(), self.images.max_bytes
        options, masks = [self.images], None
        is_far, has_label = isinstance(tree, RemoteTree), "label" in schema.names
        if "mask" in schema.names:
            options.append(mask_options(self.images))
            if isinstance(tree, RemoteTree):
                splits = None if self.split_folders is None else (*self.split_folders.items(),)
                masks = masks_of(str(tree.folder), self.mask_dir, splits)
            else:
                masks = find_mask_folders(tree, self.mask_dir, self.split_folders)
        requests = [
            FetchRequest(partial(read_files, tree, masks, row, most), row.size)
            if is_far and (masks or row.size <= most)
            else None
            for row in rows
        ]

        def decode(index: int, found: list[tuple[bytes, FetchedContent]] | None) -> Outcome:
            row = rows[index]
            files = read_files(tree, masks, row, most) if found is None else found
            return _outcome(row, files, options, has_label=has_label)

        return StartedRows(requests, decode)

    def groups(self, listing: Listing, by: str) -> Sequence[bytes]:
        """Return the group of each image: ``by`` is ``folder``, or a regular expression with one group.

        The expression is searched for in the key, the path relative to the folder.
        """
        if by == "folder":
            return [os.path.dirname(key) for key in listing.keys]
        return groups_of_keys(by, listing.keys, "'folder', or a regular expression with one (group)")

    def _tree(self) -> Tree:
        return tree_of(self.root, follow_links=self.follow_links)


def _outcome(
    row: Row,
    files: Sequence[tuple[bytes, FetchedContent]],
    options: Sequence[ImageOptions],
    *,
    has_label: bool,
) -> Outcome:
    """Return the values of a row, or why it is rejected; ``files`` are its image, and its mask."""
    if len(files) < len(options):
        return Rejected(Reason.MISSING, "there is no mask of the same name")
    values: list[Values] = []
    conversions: list[str] = []
    views: list[Geometry] = []
    for each, file in zip(options, files, strict=True):
        image = checked_content(*file, each, views)
        if isinstance(image, Rejected):
            return Rejected(image.reason, f"mask: {image.detail}") if each.mask else image
        views += [image.view] if image.view else []
        values.append(image.data)
        conversions += image.conversions
    key = to_bytes(row.key)
    return Accepted((*values, row.label, key) if has_label else (*values, key), tuple(conversions))


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


def _recorded(recorded: Recorded, _: Sequence[str]) -> Mapping[str, Any]:
    return {**changed_images(recorded.options), **changed_values(ImageFolder, recorded.options)}


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
    recorded=_recorded,
)
