"""A folder of images: class folders, split folders with class folders inside, or no folders."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfshards.prep.classes import check_class_names
from tfshards.prep.formats import SUFFIXES
from tfshards.prep.image_options import ImageOptions
from tfshards.prep.images import decoder_versions
from tfshards.prep.sources.folder_layout import arrange
from tfshards.prep.sources.image_file import read_image
from tfshards.prep.sources.listing import Accepted, Listing, Outcome, Rejected, Row, to_bytes
from tfshards.prep.sources.tree import images_in
from tfshards.schemas import InputError, OptionsError, Schema
from tfshards.schemas.reading import Json


@dataclass(frozen=True)
class ImageFolder:
    """A folder of image files; the key of an example is its path relative to the folder.

    The top-level folders are splits if every one is named train, training, validation, valid, val, dev, test
    or testing; otherwise they are classes, searched recursively. Classes are numbered in the sorted order of
    their names, over all splits together. Without folders there are no labels.

    Attributes:
        root: the folder.
        images: what becomes of each image.
        class_names: the classes in label order; the folders must be these and no others. By default they are
            the sorted names of the folders.
        follow_links: take links to files outside of the folder, and to folders.

    Raises:
        OptionsError: a class name stands twice, or the folder's name is empty.
    """

    root: str | bytes | os.PathLike[str]
    images: ImageOptions = field(default_factory=ImageOptions)
    class_names: Sequence[str] | None = None
    follow_links: bool = False

    def __post_init__(self) -> None:
        if not os.fspath(self.root):
            raise OptionsError("the image folder's name is empty; give . for the working directory")
        check_class_names(self.class_names)

    def stage(self, folder: Path, *, preview: bool = False) -> ImageFolder:
        """Return the source itself: its content is in files."""
        return self

    def location(self) -> Path:
        """Return the folder."""
        return Path(os.fsdecode(self.root))

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        # what is accepted, and what becomes of it, depends on the decoders' releases
        decoders = {} if self.images.check == "none" else decoder_versions()
        links: dict[str, Json] = {"follow_links": True} if self.follow_links else {}
        return {"source": "images", **self.images.to_json(), **links, **decoders}

    def listing(self) -> Listing:
        """Return the listing: names, sizes and modification times.

        Raises:
            InputError: the folder is missing or cannot be read, or holds no images.
        """
        root = os.path.realpath(os.fsencode(self.root))
        if not os.path.isdir(root):
            problem = "is not a folder" if os.path.exists(root) else "does not exist"
            raise InputError(f"{self.location()} {problem}")
        skipped: Counter[str] = Counter()
        try:
            found = sorted(images_in(root, skipped, follow_links=self.follow_links))
        except OSError as error:
            raise InputError(
                f"{os.fsdecode(error.filename or root)}: cannot be read: {error.strerror}"
            ) from None
        if not found:
            listed = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
            seen = f" (skipped: {listed})" if skipped else ""
            known = ", ".join(sorted(suffix.decode() for suffix in SUFFIXES))
            raise InputError(
                f"{self.location()} holds no images{seen}; files are known by {known}, or by their content"
            )
        return arrange(
            root,
            found,
            skipped,
            self.images.shape,
            class_names=self.class_names,
            follow_links=self.follow_links,
        )

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return the image, label and key of each row, or why it is rejected."""
        return [self._read_one(row, has_label="label" in schema.names) for row in rows]

    def groups(self, listing: Listing, by: str) -> Sequence[bytes]:
        """Return each image's group: ``by`` is ``folder``, or a regular expression with one group.

        The expression is searched for in the key (the path relative to the folder).
        """
        if by == "folder":
            return [os.path.dirname(key) for key in listing.keys]
        try:
            pattern = re.compile(os.fsencode(by))
        except (re.error, OverflowError, RecursionError) as error:
            raise OptionsError(f"--group-by {by}: no regular expression: {error}") from None
        if pattern.groups != 1:
            raise OptionsError(f"--group-by {by}: must be 'folder' or a regular expression with one (group)")
        found = [pattern.search(key) for key in listing.keys]
        for key, match in zip(listing.keys, found, strict=True):
            if not match or match[1] is None:
                raise InputError(f"--group-by {by}: does not match the key {os.fsdecode(key)!r}")
        return [match[1] for match in found if match]

    def _read_one(self, row: Row, *, has_label: bool) -> Outcome:
        key = to_bytes(row.key)
        image = read_image(os.path.join(os.fsencode(self.root), key), row, self.images)
        if isinstance(image, Rejected):
            return image
        return Accepted((image.data, row.label, key) if has_label else (image.data, key), image.conversions)
