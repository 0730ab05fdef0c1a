"""A folder of images: with class folders, with split folders, with both, or without folders."""

from __future__ import annotations

import operator
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.imaging.options import MAX_BYTES, ImageOptions
from tfshards.prep.records.example import Values
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Reader, Rejected, Row
from tfshards.prep.sources.classes import check_class_names, twins
from tfshards.prep.sources.fetching import fetched_ahead, read_as_listed
from tfshards.prep.sources.keys import KEY_FEATURE, groups_of_keys, to_bytes
from tfshards.prep.sources.kinds import Recorded, check_num_inputs
from tfshards.prep.sources.layout import (
    OUTSIDE,
    check_layout,
    check_split_folders,
    find_layout,
    parse_split_folders,
)
from tfshards.prep.sources.marks import ALWAYS, check_marks
from tfshards.prep.sources.masks import MaskFolders, MaskName, find_mask_folders, pair_masks
from tfshards.prep.sources.patterns import check_patterns, choose_keys
from tfshards.prep.sources.pictures import (
    EncodedImage,
    ImageRules,
    check_mask_depth,
    convert_images,
    decoders_of,
    image_feature,
    mask_feature,
)
from tfshards.prep.sources.remote_tree import RemoteTree, Tree, tree_of
from tfshards.prep.sources.split_lists import (
    UNLISTED,
    SplitLists,
    check_split_list,
    read_split_lists,
    split_list_option,
)
from tfshards.prep.sources.tree import ImageFile
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import check_instance, check_path, option, recorded_values, to_json
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

    ``tfshards build images --help`` describes each option.

    Attributes:
        root: the folder, or its URL, such as ``s3://bucket/photos``.
        images: how images are checked, converted and stored.
        class_names: class names in label order, which must be those of the class folders; by default sorted.
        allow_missing_classes: accept names of classes and splits that have no folder.
        split_folders: the folder of each split; others are skipped. If empty, every folder is a class.
        mask_dir: folder of the masks; by default ``masks`` next to ``images``, in ``root`` or in its split
            folders. A mask has the path of its image in the folder of images, except for the suffix.
        mask_name: template of the path of a mask in ``mask_dir``, see ``masks.MaskName``. Other files there
            are skipped.
        split_list: path of the list of each split, see ``split_lists.read_split_lists``; files in no list are
            left out.
        as_is: marks of another layout are an error otherwise, unless ``mask_dir`` or an empty
            ``split_folders`` is given. Datasets do not record it.

    Raises:
        OptionsError: an argument is not allowed, or has no effect.
    """

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
        False,
        "take folders as classes and splits even if names show another layout, such as Pascal VOC's",
        recorded="never",
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
            MaskName.parse(self.mask_name)
        check_split_folders(self.split_folders)
        check_split_list(self.split_list)
        if self.split_list and self.split_folders:
            raise OptionsError("split-list-and-folders")
        check_patterns("include", self.include)
        check_patterns("exclude", self.exclude)
        if self.allow_missing_classes and self.class_names is None and not self.split_folders:
            raise OptionsError("allow-missing-useless")

    @classmethod
    def from_recorded(cls, recorded: Recorded, inputs: Sequence[str]) -> ImageFolder:
        """Return the source of a build, as a manifest records it; the folder may have moved."""
        check_num_inputs(inputs, 1, "one folder of images")
        values = recorded_values(cls, recorded.options)
        values.setdefault("follow_links", recorded.is_grown and recorded.follow_links)
        return cls(
            inputs[0],
            recorded.images,
            class_names=recorded.class_names,
            # the build may have allowed it, and new images need not be of every class or split
            allow_missing_classes=recorded.class_names is not None or bool(values.get("split_folders")),
            as_is=True,
            **values,
        )

    def location(self) -> AnyPath:
        """Return the folder."""
        return any_path(os.fsdecode(self.root))

    def with_class_names(self, names: Sequence[str]) -> ImageFolder:
        """Return the source with these class names, unless it has its own; some may have no folder."""
        if self.class_names is not None:
            return self
        return replace(self, class_names=names, allow_missing_classes=True)

    def stage(self, folder: Path, *, group_by: str | None = None, preview: bool = False) -> Reader:
        """Return a reader of the images, which are listed by their names, sizes and modification times.

        Examples are grouped by ``folder``, or by what the one group of a regular expression matches in keys.

        Raises:
            InputError: the folder is missing, cannot be read, holds no images, or has marks of a layout whose
                classes are not its folders.
        """
        tree = tree_of(self.root, follow_links=self.follow_links)
        try:
            listing, masks = self._listing(tree)
        except OSError as error:
            path = os.fsdecode(error.filename or tree.root)
            raise InputError("unreadable", path=path, why=error.strerror) from None
        if group_by == "folder":
            listing = replace(listing, groups=[os.path.dirname(key) for key in listing.keys])
        elif group_by is not None:
            allowed = "'folder', or a regular expression with one (group)"
            listing = replace(listing, groups=groups_of_keys(group_by, listing.keys, allowed))
        recorded = to_json(self)
        if self.mask_dir is not None:
            recorded["mask_dir"] = os.fsdecode(tree.path(self.mask_dir))
        # which images are accepted, and how they are converted, depends on the versions of the decoders
        options = {"source": "images", **self.images.to_json(), **recorded, **decoders_of()}
        if masks is None:
            return FolderReader(self, options, listing)
        return _stage_pairs(self, options, tree, listing, masks, folder, preview=preview)

    def _listing(self, tree: Tree) -> tuple[Listing, list[ImageFile] | None]:
        """Return the listing of the images, and the mask of each if there are masks."""
        skipped: Counter[str] = Counter()
        files = FileTable.of(tree.images(skipped)).by_key()
        folders = find_mask_folders(tree, self.mask_dir, self.split_folders, self.mask_name)
        check_mask_depth(self.images, has_masks=folders is not None)
        is_declared = folders is not None or self.as_is or self.split_folders == {} or not files.keys
        warnings = check_marks(os.fsdecode(self.root), files.keys, tree.marks, 0 if is_declared else ALWAYS)
        masks: list[ImageFile] = []
        if folders is not None:
            masks = [file for file in files if folders.is_mask(file.key)]
            files = files.without({file.key for file in masks})
        # patterns choose images; their masks follow
        files, lists, unmatched = self._chosen(files, skipped)
        if not files.keys:
            listed = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
            seen = f" (skipped: {listed})" if skipped else ""
            known = ", ".join(sorted(suffix.decode() for suffix in SUFFIXES))
            raise InputError("folder-no-images", *warnings, given=self.location(), seen=seen, known=known)
        has_labels = lists is not None and bool(lists.label_of)
        listing = self._arranged(tree, files, folders, skipped, is_flat=has_labels)
        if folders is not None:
            masks, pairing = pair_masks(tree, folders, listing.keys, masks, skipped)
            unmatched += pairing
            if self.mask_dir is None and not self.as_is:
                unmatched.append(
                    "'masks' next to 'images' is taken for their masks, the feature 'mask'; split_folders={} "
                    "takes both for classes"
                )
        listing = replace(
            listing,
            skipped=dict(sorted(skipped.items())),
            warnings=(*warnings, *unmatched, *listing.warnings),
        )
        if lists is not None:
            listing = lists.applied(listing, self.class_names)
        return listing, None if folders is None else masks

    def _chosen(
        self, files: FileTable, skipped: Counter[str]
    ) -> tuple[FileTable, SplitLists | None, list[str]]:
        """Return the images that patterns and lists choose, the lists, and warnings."""
        keys = files.keys
        left_out, warnings = choose_keys(keys, self.include, self.exclude)
        if left_out:
            skipped["excluded"] += len(left_out)
        lists = None
        if self.split_list and keys:
            lists = read_split_lists(self.split_list, self.location(), keys)
            unlisted, more = lists.unlisted([key for key in keys if key not in left_out])
            left_out, warnings = left_out | unlisted, [*warnings, *more]
            if unlisted:
                skipped[UNLISTED] += len(unlisted)
        if keys and len(left_out) == len(keys):
            raise InputError("patterns-leave-none", *warnings, given=self.location(), num_images=len(keys))
        return files.without(left_out) if left_out else files, lists, warnings

    def _arranged(
        self,
        tree: Tree,
        files: FileTable,
        masks: MaskFolders | None,
        skipped: Counter[str],
        *,
        is_flat: bool,
    ) -> Listing:
        """Return the listing of images, with splits and classes by their folders unless it ``is_flat``.

        Images outside of the class or split folders are counted in ``skipped``.
        """
        # there are few folders, so that decisions are made for each folder once
        number: dict[bytes, int] = {}
        of_keys = (number.setdefault(key.rpartition(b"/")[0], len(number)) for key in files.keys)
        folder_of = np.fromiter(of_keys, np.int64, len(files.keys))
        inside = [masks.inside(name) if masks else name for name in number]
        holding = [name for name in inside if name is not None]
        all_folders = [masks.inside(path) if masks else path for path in tree.paths()]
        layout = find_layout(
            tree.root,
            [] if is_flat else [path for path in all_folders if path],
            holding,
            None if is_flat else self.class_names,
            {} if is_flat else self.split_folders,
            may_lack=self.allow_missing_classes,
        )
        if not (is_flat or self.as_is or self.class_names or self.split_folders == {}):
            marks = {} if masks else tree.marks
            check_layout(os.fsdecode(tree.root), files.keys, marks, layout, holding)
        labels = layout.labels(inside)[folder_of]
        kept = np.flatnonzero(labels != OUTSIDE)
        if not len(kept):
            root = os.fsdecode(tree.root)
            raise InputError("images-outside-folders", root=root, num_found=len(files.keys))
        if len(kept) < len(labels):
            skipped["beside the folders"] += len(labels) - len(kept)
            files, labels, folder_of = files.take(kept), labels[kept], folder_of[kept]
        splits = {}
        for top, split in layout.split_of.items():
            is_in = np.array([name is not None and layout.parts(name)[0] == top for name in inside])
            splits[split] = np.flatnonzero(is_in[folder_of])
        names = layout.class_names
        num_examples = {split: len(numbers) for split, numbers in splits.items()}
        features = [image_feature("image", self.images)]
        features += [Feature("label", "label", "int64")] if names else []
        return Listing(
            schema=Schema((*features, KEY_FEATURE), names),
            keys=files.keys,
            sizes=files.sizes,
            stamps=files.stamps,
            labels=labels if names else None,
            splits={split: numbers for split, numbers in splits.items() if len(numbers)} or None,
            warnings=(*layout.warnings(num_examples, labels), *twins(names)),
        )


@dataclass(frozen=True)
class FolderReader:
    """The reader of a folder of images without masks: what it reads of an example is in the plan.

    Attributes:
        source: the folder.
        recorded: the options that change the output.
        listed: the listing; None in workers.
    """

    source: ImageFolder
    recorded: Mapping[str, Json]
    listed: Listing | None

    def __getstate__(self) -> dict[str, object]:
        """Return what workers need, who read the rows of plans."""
        return {**self.__dict__, "listed": None}

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        return dict(self.recorded)

    def listing(self) -> Listing:
        """Return the listing."""
        assert self.listed is not None
        return self.listed

    def read(self, rows: Sequence[Row], schema: Schema) -> Iterator[Outcome]:
        """Yield the image, label and key of each row, or why it is rejected."""
        tree = tree_of(self.source.root, follow_links=self.source.follow_links)
        rules = ImageRules(self.source.images)

        def fetch(row: Row) -> EncodedImage:
            key = to_bytes(row.key)
            content = read_as_listed(tree.at(key), row.size, row.stamp, MAX_BYTES)
            return EncodedImage("image", content, key)

        is_far = isinstance(tree, RemoteTree)
        found = fetched_ahead(fetch, rows, lambda row: row.size) if is_far else map(fetch, rows)
        for row, image in zip(rows, found, strict=True):
            values: dict[str, Values] = {"label": row.label, "key": image.path}
            conversions = convert_images(rules, [image], values)
            if isinstance(conversions, Rejected):
                yield conversions
            else:
                yield Accepted([values[name] for name in schema.names], conversions)


def _stage_pairs(
    source: ImageFolder,
    recorded: Mapping[str, Json],
    tree: Tree,
    listing: Listing,
    masks: Sequence[ImageFile],
    folder: Path,
    *,
    preview: bool,
) -> Reader:
    """Return a reader of images with their masks, which it finds in a table."""
    # needs Arrow, which images without masks do not
    import pyarrow as pa

    from tfshards.prep.sources.image_paths import ImageFiles
    from tfshards.prep.sources.staged import Rows, stage

    keys, labels, text = listing.keys, listing.labels, pa.large_binary()
    splits = np.full(len(keys), None, object)
    for split, numbers in (listing.splits or {}).items():
        splits[numbers] = split.encode()
    paths = [file.key for file in masks]
    sizes, stamps = (np.array([file[column] for file in masks], np.int64) for column in (1, 2))
    image, *others = listing.schema.features[:-1]
    rows = Rows(
        num_rows=len(keys),
        features=[image, mask_feature("mask", source.images), *others],
        rules=ImageRules(source.images, frozenset({"mask"})),
        recorded=recorded,
        values={} if labels is None else {"label": pa.chunked_array([labels])},
        images={
            "image": ImageFiles(keys, keys, listing.sizes, listing.stamps, keys),
            "mask": ImageFiles(paths, paths, sizes, stamps, paths),
        },
        keys=pa.chunked_array([pa.array(keys, text)]),
        splits=pa.chunked_array([pa.array(splits, text)]) if listing.splits else None,
        groups=listing.groups,
        class_names=listing.schema.class_names,
        root=tree.root,
        warnings=listing.warnings,
        skipped=listing.skipped,
    )
    return stage(rows, folder, preview=preview)


@dataclass(frozen=True, eq=False)
class FileTable:
    """Image files in a folder: keys, and sizes and stamps of shape ``(num_files,)`` int64."""

    keys: Sequence[bytes]
    sizes: IntArray
    stamps: IntArray

    @classmethod
    def of(cls, files: Iterable[ImageFile]) -> FileTable:
        """Return the files in the given order."""
        keys: list[bytes] = []
        sizes, stamps = array("q"), array("q")
        for key, size, stamp in files:
            keys.append(key)
            sizes.append(size)
            stamps.append(stamp)
        return cls(keys, np.frombuffer(sizes, np.int64), np.frombuffer(stamps, np.int64))

    def __iter__(self) -> Iterator[ImageFile]:
        return map(ImageFile, self.keys, self.sizes.tolist(), self.stamps.tolist())

    def by_key(self) -> FileTable:
        """Return the files sorted by key."""
        if all(map(operator.lt, self.keys, islice(self.keys, 1, None))):
            return self
        return self.take(np.array(sorted(range(len(self.keys)), key=self.keys.__getitem__), np.int64))

    def without(self, keys: Set[bytes]) -> FileTable:
        """Return the files without those of some keys."""
        return self.take(np.flatnonzero([key not in keys for key in self.keys]))

    def take(self, numbers: IntArray) -> FileTable:
        """Return the files with these numbers, in this order."""
        keys = [self.keys[number] for number in numbers.tolist()]
        return FileTable(keys, self.sizes[numbers], self.stamps[numbers])
