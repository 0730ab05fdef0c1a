"""Open a dataset from which others are derived: its manifest, indexes, labels, records and rejects."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tfshards.prep.building.commit import read_rejects, rejects_text
from tfshards.prep.records.reader import FrameReader
from tfshards.prep.writing.area import Reject
from tfshards.schemas import InputError, Manifest, Shard, read_manifest
from tfshards.schemas.companions import read_index, read_labels
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.index import IntArray, RecordIndex
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest_file import file_problems
from tfshards.schemas.names import rejects_name
from tfshards.schemas.storage import AnyPath, any_path

# Appended to every message about damage.
SEE_VERIFY = "tfshards verify lists all damage"


@dataclass(frozen=True)
class Origin:
    """A committed dataset.

    Attributes:
        root: folder of the dataset, or its URL.
        manifest: manifest of the dataset.
    """

    root: AnyPath
    manifest: Manifest

    def index(self, shard: Shard) -> RecordIndex:
        """Return the offsets of the records of a shard.

        Raises:
            InputError: the index is missing or damaged.
        """
        index, problems = read_index(self.root, shard)
        if index is None:
            raise self._damaged(str(problems[0]))
        return index

    def frames(self, shard: Shard) -> FrameReader:
        """Return a reader of single frames of a shard.

        Raises:
            InputError: the index is missing or damaged.
            OSError: the shard cannot be read.
        """
        return FrameReader(self.root / shard.path, self.manifest.compression, self.index(shard))

    def labels(self, shard: Shard) -> IntArray | None:
        """Return the label of each record of a shard, shape ``(num_examples,)``; None if there are no labels.

        Raises:
            InputError: the file of labels is missing or damaged.
        """
        if not shard.labels_digest:
            return None
        labels, problems = read_labels(self.root, shard)
        if problems:
            raise self._damaged(str(problems[0]))
        return labels

    def rejects(self) -> list[Reject]:
        """Return the rejected inputs.

        Raises:
            InputError: the file that lists them is missing or damaged.
        """
        if not self.manifest.totals.rejected:
            return []
        name = rejects_name(self.manifest.build_id)
        rejects = read_rejects(self.root / name)
        if bytes_digest(rejects_text(rejects)) != self.manifest.rejects_digest:
            raise self._damaged(f"{name}: its digest differs from the manifest's")
        return rejects

    def to_json(self) -> dict[str, Json]:
        """Return what the manifest of a derived dataset records about this one."""
        manifest = self.manifest
        return {"name": manifest.name, "build_id": manifest.build_id, "options": dict(manifest.options)}

    def _damaged(self, problem: str) -> InputError:
        return InputError("origin-damaged", root=self.root, fault=problem, see_verify=SEE_VERIFY)


def open_origin(root: str | os.PathLike[str] | AnyPath) -> Origin:
    """Return the dataset in ``root`` after checking the sizes of its shards.

    Raises:
        InputError: ``root`` is not a dataset, or a shard is missing or has another size.
        FormatError: the manifest is damaged.
    """
    origin = Origin(any_path(root), read_manifest(root))
    problems = file_problems(origin.manifest, root)
    if problems:
        raise origin._damaged(str(problems[0]))
    return origin
