"""A folder of images: with class folders, with split folders, with both, or without folders."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.imaging.options import ImageOptions, recorded_images
from tfshards.prep.option import changed_options, check_choices, recorded_options
from tfshards.prep.records.example import Values
from tfshards.prep.sources.base import Listing, Outcome, Reader, Row, Source
from tfshards.prep.sources.classes import ClassNames, given_class_names, twins
from tfshards.prep.sources.fetching import FILES_AHEAD, unreadable
from tfshards.prep.sources.keys import KEY_FEATURE, groups_of_keys, to_bytes, to_text
from tfshards.prep.sources.kinds import check_num_inputs
from tfshards.prep.sources.layout import check_paths_of_splits, find_layout
from tfshards.prep.sources.marks import ALWAYS, NOTHING, check_marks, refusal
from tfshards.prep.sources.masks import MaskFolders, check_masks, find_mask_folders, pair_masks
from tfshards.prep.sources.patterns import check_patterns, choose_keys
from tfshards.prep.sources.pictures import (
    EncodedImage,
    ImageRules,
    check_mask_depth,
    convert_images,
    decoders_of,
    image_feature,
    read_image,
)
from tfshards.prep.sources.split_lists import read_split_lists
from tfshards.prep.sources.tree import FolderFiles, RemoteTree, Tree, tree_of
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.errors import check_instance, check_path, counted
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath, any_path, in_flight

# Options that manifests record if they do not have their default values.
_RECORDED = ("follow_links", "split_folders", "include", "exclude", "mask_dir", "mask_name", "split_list")


@dataclass(frozen=True)
class ImageFolder(Source):
    """A folder of image files; the key of an example is its path relative to the folder.

    The top-level folders are splits if all that hold images are named train, training, validation, valid,
    val, dev, test or testing, in any case; the names of the splits are in lower case. If no folder has such a
    name, they are classes, which are searched recursively. The classes of all splits are numbered in the
    sorted order of their names; in a split folder without class folders, examples have the label -1 if others
    have classes. Without class folders there are no labels.

    Attributes:
        root: folder that holds class folders, split folders or images, or its URL, such as
            s3://bucket/photos.
        images: how images are checked, converted and stored.
        class_names: file of the class names in label order, one per line, or a dataset that has them, or, in
            Python, the names; the class folders must have these names. By default the names of the folders,
            sorted.
        follow_links: follow links to folders, and out of the input folder.
        split_folders: folder of each split, such as train=Train and test=holdout; others are skipped. If
            empty, every folder is a class. By default the folders are splits if all are named train, val,
            test or the like.
        include: take only images whose path relative to the folder matches this pattern, such as
            "**/*.jpg": * matches within a folder, ** across folders.
        exclude: skip images whose path matches this pattern.
        mask_dir: folder of the masks below the input folder. A mask has the path of its image in the folder
            of images, except for the suffix. By default "masks" next to "images", in the input folder or in
            its split folders.
        mask_name: template of the path of a mask in its folder, such as "{folders}/{stem:-_image}_mask.png":
            the folders of its image, and its name without the suffix, here also without the ending "_image".
            By default the name of the image, except for the suffix.
        split_list: list of the files of each split, such as train=train.txt, relative to the input folder:
            one path per line. Files in no list are left out.
        as_is: take folders as classes and splits even if their names show another layout, such as that of
            Pascal VOC.

    Raises:
        OptionsError: an argument is not allowed, or has no effect.
    """

    root: str | bytes | os.PathLike[str]
    images: ImageOptions = field(default_factory=ImageOptions)
    class_names: ClassNames = None
    follow_links: bool = False
    split_folders: Mapping[str, str] | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    mask_dir: str | None = None
    mask_name: str | None = None
    split_list: Mapping[str, str] = field(default_factory=dict)
    as_is: bool = False
    # names of classes and splits may have no folder: those of a dataset, to which images are added
    _may_lack: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        check_path("root", self.root)
        check_choices(self)
        check_instance("images", self.images, ImageOptions)
        if not os.fspath(self.root):
            raise OptionsError("root= is empty; give '.' for the working directory")
        any_path(self.root)
        given_class_names(self.class_names)
        check_masks(self.mask_dir, self.mask_name)
        folders = {} if self.split_folders is None else self.split_folders
        allowed = "a folder of its own in the source, such as {'train': 'Train', 'test': 'holdout'}"
        check_paths_of_splits("split_folders", folders, "[^./][^/]*", allowed)
        # manifests record no absolute paths
        allowed = "a file of its own, relative to the source, such as {'train': 'train.txt'}"
        check_paths_of_splits("split_list", self.split_list, "(?!/|[^/]*://).+", allowed)
        if self.split_list and self.split_folders:
            raise OptionsError("split_list= and split_folders= both give the splits; leave out one of them")
        check_patterns("include", self.include)
        check_patterns("exclude", self.exclude)

    @classmethod
    def from_recorded(cls, options: Mapping[str, Any], inputs: Sequence[str], _: Schema) -> ImageFolder:
        """Return a source of another folder, or of one that has grown, with the options of a build."""
        check_num_inputs(inputs, 1, "one folder of images")
        return cls(
            inputs[0],
            recorded_images(options),
            as_is=True,
            # new images need not be of every class or split
            _may_lack=True,
            **recorded_options(_RECORDED, options),
        )

    def _recorded(self) -> dict[str, Json]:
        """Return the options as manifests record them."""
        found = changed_options(self, _RECORDED)
        for name in {"include", "exclude"} & {*found}:
            found[name] = sorted({*getattr(self, name)})
        return found | ({"mask_dir": posixpath.normpath(self.mask_dir)} if self.mask_dir else {})

    def location(self) -> AnyPath:
        """Return the folder."""
        return any_path(os.fsdecode(self.root))

    def with_class_names(self, names: Sequence[str]) -> ImageFolder:
        """Return the source with these class names, unless it has its own; some may have no folder."""
        return self if self.class_names is not None else replace(self, class_names=names, _may_lack=True)

    def stage(self, folder: Path | None, *, group_by: str | None = None) -> Reader:
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
            raise unreadable(error.filename or tree.root, error) from None
        if group_by is not None:
            allowed = "'folder', or a regular expression with one (group)"
            folders = [*map(os.path.dirname, listing.keys)] if group_by == "folder" else None
            listing = replace(listing, groups=folders or groups_of_keys(group_by, listing.keys, allowed))
        # which images are accepted, and how they are converted, depends on the versions of the decoders
        options = {"source": "images", **self.images.to_json(), **self._recorded()}
        options |= decoders_of(self.images, has_masks=masks is not None)
        if masks is None:
            return FolderReader(self, options, listing)
        return _stage_pairs(self, options, tree.root, listing, masks, folder)

    def _listing(self, tree: Tree) -> tuple[Listing, FolderFiles | None]:
        """Return the listing of the images, and the mask of each if there are masks."""
        files, masks = tree.files(), None
        mask_folders = find_mask_folders(
            tree.root, files.folders[0], self.mask_dir, self.mask_name, self.split_folders
        )
        check_mask_depth(self.images, has_masks=mask_folders is not None)
        if mask_folders is not None:
            are_masks = np.array([mask_folders.is_mask(key) for key in files.keys], bool)
            files, masks = files.take(np.flatnonzero(~are_masks)), files.take(np.flatnonzero(are_masks))
        if not files.keys:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(files.skipped.items()))
            seen = f" (skipped: {reasons})" if reasons else ""
            known = ", ".join(sorted(suffix.decode() for suffix in SUFFIXES))
            lines = check_marks(os.fsdecode(self.root), files.keys, files.marks, NOTHING)
            raise InputError(
                f"{self.location()} holds no images{seen}; images are recognized by the suffixes {known}; a "
                "table with the column file_name names files with others",
                *lines,
                code="no-inputs",
            )
        warnings: list[str] = []
        if files.empty:
            # perhaps a class whose images were not copied; only disks have empty folders, so it is no class
            names = counted(len(files.empty), "empty folder")
            warnings.append(f"{names}, such as {to_text(files.empty[0])!r}")
        # patterns choose images; their masks follow
        files, split_of, digest = self._chosen(files, warnings)
        listing = self._arranged(tree.root, files, mask_folders, split_of, warnings)
        if mask_folders is not None and masks is not None:
            masks, num_lone = pair_masks(mask_folders, listing.keys, masks)
            if num_lone:
                listing = replace(listing, skipped={**listing.skipped, "mask without an image": num_lone})
            if self.mask_dir is None and not self.as_is:
                warnings.append(
                    "'masks' next to 'images' is taken for their masks, the feature 'mask'; split_folders={} "
                    "takes both for classes"
                )
        skipped = dict(sorted(listing.skipped.items()))
        return replace(listing, skipped=skipped, identity=digest, warnings=tuple(warnings)), masks

    def _chosen(
        self, files: FolderFiles, warnings: list[str]
    ) -> tuple[FolderFiles, Mapping[bytes, str], str]:
        """Return the images that patterns and lists choose, splits by lists, and the digest of these."""
        numbers, lines = choose_keys(files.keys, self.include, self.exclude)
        chosen, split_of, digest = files.keep(numbers, "excluded")[0], dict[bytes, str](), ""
        warnings += lines
        if self.split_list:
            split_of, digest = read_split_lists(self.split_list, self.location(), files.keys)
            listed = np.flatnonzero([key in split_of for key in chosen.keys])
            chosen, lines = chosen.keep(listed, "in no split list")
            warnings += lines
        if not chosen.keys:
            raise InputError(
                f"{self.location()} holds images ({len(files.keys):,}), but include= and exclude= leave "
                "none of them; correct the patterns",
                *warnings,
                code="no-inputs",
            )
        return chosen, split_of, digest

    def _arranged(
        self,
        root: bytes,
        files: FolderFiles,
        masks: MaskFolders | None,
        split_of: Mapping[bytes, str],
        warnings: list[str],
    ) -> Listing:
        """Return the listing of images, with classes by their folders, and splits by these or by lists."""
        # there are few folders, so that decisions are made for each folder once
        folders, folder_of = files.folders
        inside = [masks.inside(path) if masks else path for path in folders]
        class_names = given_class_names(self.class_names)
        is_declared = self.as_is or self.split_folders == {}
        least = NOTHING if is_declared or masks else ALWAYS
        # first, since what is wrong about the layout of a known dataset is no help
        check_marks(os.fsdecode(self.root), files.keys, files.marks, least)
        layout = find_layout(root, inside, class_names, self.split_folders, may_lack=self._may_lack)
        last = layout.last if least and not class_names else least
        warnings += check_marks(os.fsdecode(self.root), files.keys, files.marks, last)
        if layout.seen[0] and not (is_declared or class_names):
            raise refusal(os.fsdecode(self.root), *layout.seen)
        is_inside = np.array([place is not None for place in layout.places])[folder_of]
        if not is_inside.any():
            raise InputError(
                f"{os.fsdecode(root)} holds no images inside its folders, only {len(is_inside)} outside "
                "them; move them into the folders"
            )
        files, lines = files.keep(np.flatnonzero(is_inside), "outside the folders")
        folder_of = folder_of[is_inside]
        warnings += [*layout.warnings, *twins(layout.class_names), *lines]
        order = {split: number for number, split in enumerate(self.split_list or layout.splits)}
        if self.split_list:
            in_split = np.array([order[split_of[key]] for key in files.keys], np.int64)
        else:
            in_split = np.array([order.get(each[0], -1) if each else -1 for each in layout.places])[folder_of]
        splits = {split: np.flatnonzero(in_split == number) for split, number in order.items()}
        features = [image_feature("image", self.images)]
        features += [Feature("label", "label", "int64")] if layout.class_names else []
        labels = np.array([each[1] if each else -1 for each in layout.places], np.int64)[folder_of]
        return Listing(
            schema=Schema((*features, KEY_FEATURE), layout.class_names),
            keys=files.keys,
            sizes=files.sizes,
            stamps=files.stamps,
            labels=labels if layout.class_names else None,
            splits={split: numbers for split, numbers in splits.items() if len(numbers)} or None,
            skipped=files.skipped,
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
            return read_image(tree.at(to_bytes(row.key)), row.size, row.stamp)

        is_far = isinstance(tree, RemoteTree)
        ahead = in_flight(fetch, rows, FILES_AHEAD, num_bytes=lambda row: row.size)
        found = ahead if is_far else map(fetch, rows)
        for row, image in zip(rows, found, strict=True):
            values: dict[str, Values] = {"label": row.label, "key": to_bytes(row.key)}
            yield convert_images(rules, {"image": image}, values, schema.names)


def _stage_pairs(
    source: ImageFolder,
    recorded: Mapping[str, Json],
    root: bytes,
    listing: Listing,
    masks: FolderFiles,
    folder: Path | None,
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
    image, *others = listing.schema.features[:-1]
    rows = Rows(
        num_rows=len(keys),
        features=[image, image_feature("mask", source.images, "mask"), *others],
        rules=ImageRules(source.images, frozenset({"mask"})),
        recorded=recorded,
        values={} if labels is None else {"label": pa.chunked_array([labels])},
        images={
            "image": ImageFiles(keys, keys, listing.sizes, listing.stamps, keys),
            "mask": ImageFiles(masks.keys, masks.keys, masks.sizes, masks.stamps, masks.keys),
        },
        keys=pa.chunked_array([pa.array(keys, text)]),
        splits=pa.chunked_array([pa.array(splits, text)]) if listing.splits else None,
        groups=listing.groups,
        class_names=listing.schema.class_names,
        root=root,
        warnings=listing.warnings,
        skipped=listing.skipped,
    )
    return stage(rows, folder)
