"""A folder of images: with class folders, with split folders, with both, or without folders."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.sources.base import Listing, Outcome, Row
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.fetching import fetched_ahead
from tfshards.prep.sources.image_file import (
    check_mask_depth,
    decoders_of,
    depth_warning,
    image_feature,
    mask_feature,
    mask_options,
    outcome_of,
)
from tfshards.prep.sources.images.layout import (
    FileTable,
    FolderRules,
    arrange,
    check_split_folders,
    parse_split_folders,
)
from tfshards.prep.sources.images.mask_names import parse_mask_name
from tfshards.prep.sources.images.masks import (
    find_mask_folders,
    folder_name,
    masks_of,
    pair_files,
    read_files,
)
from tfshards.prep.sources.marks import ALWAYS, check_marks
from tfshards.prep.sources.patterns import check_patterns, choose_keys
from tfshards.prep.sources.remote_tree import RemoteTree, Tree, tree_of
from tfshards.prep.sources.split_lists import (
    UNLISTED,
    check_split_list,
    read_split_lists,
    split_list_option,
)
from tfshards.schemas import InputError, OptionsError, Schema
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import (
    check_instance,
    check_path,
    option,
    to_json,
)
from tfshards.schemas.storage import AnyPath, any_path, check_expanded, is_remote

_MATCHING = "whose path relative to SOURCE matches, such as '**/*.jpg': * within a folder, ** across folders"


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
        mask_name: template of the path of a mask in ``mask_dir``, such as
            ``{folders}/{stem:-_leftImg8bit}_gtFine_labelIds.png``: ``{folders}`` are the folders of the image
            in its folder, ``{stem}`` is its name without the suffix, and ``{stem:-ENDING}`` without the
            ending, too. Other files in the folder are skipped.
        split_list: the list of the files of each split, such as ``{"train": "train.txt"}``: its path relative
            to ``root``, in it one path per line, relative to ``root`` or to the folder of the list, perhaps
            with a label after a space, tab or comma, which replaces the label of the folder. A path without
            a suffix stands for the only file of this name. Files in no list are left out.
        as_is: take folders as classes and splits even if names of files or folders are marks of another
            layout, which is an error otherwise, unless ``mask_dir`` or an empty ``split_folders`` is given.

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
        parse=parse_split_folders,
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
    mask_name: str | None = option(
        None,
        "path of a mask in its folder, such as '{folders}/{stem:-_leftImg8bit}_gtFine_labelIds.png', from "
        "the folders of its image and its name without suffix, of which an ending may be taken off",
        metavar="TEMPLATE",
        default_text="the name of the image, except for the suffix",
    )
    split_list: Mapping[str, str] = split_list_option()
    as_is: bool = option(
        False, "take folders as classes and splits even if names show another layout, such as Pascal VOC's"
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
        if self.mask_name is not None:
            if self.mask_dir is None:
                raise OptionsError("mask-name-useless")
            parse_mask_name(self.mask_name)
        check_split_folders(self.split_folders)
        check_split_list(self.split_list)
        if self.split_list and self.split_folders:
            raise OptionsError("split-list-and-folders")
        check_patterns("include", self.include)
        check_patterns("exclude", self.exclude)
        if self.allow_missing_classes and self.class_names is None and not self.split_folders:
            raise OptionsError("allow-missing-useless")

    def stage(self, folder: Path, *, group_by: str | None = None, preview: bool = False) -> ImageFolder:
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
            InputError: the folder is missing, cannot be read, holds no images, or has marks of a layout whose
                classes are not its folders.
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
        folders = find_mask_folders(tree, self.mask_dir, self.split_folders, self.mask_name)
        check_mask_depth(self.images, has_masks=folders is not None)
        is_declared = folders is not None or self.as_is or self.split_folders == {} or self._is_restored
        last = 0 if is_declared or not found.keys else ALWAYS
        warnings = check_marks(os.fsdecode(self.root), found.keys, tree.marks, last)
        # patterns choose images; their masks follow
        images = found.keys if folders is None else [key for key in found.keys if not folders.is_mask(key)]
        excluded, unmatched = choose_keys(images, self.include, self.exclude)
        lists, outside = None, set[bytes]()
        if self.split_list and images:
            lists = read_split_lists(self.split_list, self.location(), images)
            outside, more = lists.unlisted([key for key in images if key not in excluded])
            unmatched += more
            skipped.update({UNLISTED: len(outside)} if outside else {})
        if images and len(excluded | outside) == len(images):
            raise InputError("patterns-leave-none", *unmatched, given=self.location(), num_images=len(images))
        if excluded:
            skipped["excluded"] += len(excluded)
        if excluded | outside:
            left_out = excluded | outside
            found = found.take(np.flatnonzero([key not in left_out for key in found.keys]))
        if not len(found):
            listed = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
            seen = f" (skipped: {listed})" if skipped else ""
            known = ", ".join(sorted(suffix.decode() for suffix in SUFFIXES))
            raise InputError("folder-no-images", *warnings, given=self.location(), seen=seen, known=known)
        warnings += unmatched
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
        folders_of: Callable[[bytes], list[bytes]] = tree.folders
        rules = FolderRules(
            self.class_names,
            self.allow_missing_classes,
            self.split_folders,
            as_is=self.as_is or self._is_restored,
            has_masks=folders is not None,
        )
        if folders is not None:
            folders_of = partial(folders.folders, tree)
        if lists is not None and lists.label_of:
            # the folders are neither classes nor splits
            folders_of, rules = lambda _: [], FolderRules(split_folders={})
        listing = arrange(
            tree,
            found,
            folders_of,
            rules,
            features,
            skipped,
        )
        keys = listing.keys if folders is None else [folders.key(path) for path in listing.keys]
        deep = depth_warning(tree, keys, self.images)
        listing = replace(listing, keys=keys, warnings=(*warnings, *listing.warnings, *deep))
        return listing if lists is None else lists.applied(listing, self.class_names)

    def read(self, rows: Sequence[Row], schema: Schema) -> Iterator[Outcome]:
        """Yield the image, its mask, label and key of each row, or why it is rejected."""
        tree, most = self._tree(), self.images.max_bytes
        options, masks, has_label = [self.images], None, "label" in schema.names
        if "mask" in schema.names:
            options.append(mask_options(self.images))
            if isinstance(tree, RemoteTree):
                splits = None if self.split_folders is None else (*self.split_folders.items(),)
                masks = masks_of(str(tree.folder), self.mask_dir, splits, self.mask_name)
            else:
                masks = find_mask_folders(tree, self.mask_dir, self.split_folders, self.mask_name)
        fetch = lambda row: read_files(tree, masks, row, most)  # noqa: E731
        is_far = isinstance(tree, RemoteTree)
        found = fetched_ahead(fetch, rows, lambda row: row.size) if is_far else map(fetch, rows)
        for row, files in zip(rows, found, strict=True):
            yield outcome_of(row, files, options, has_label=has_label)

    def _tree(self) -> Tree:
        return tree_of(self.root, follow_links=self.follow_links)
