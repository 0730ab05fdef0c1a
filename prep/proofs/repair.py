"""``verify --repair``: only the files that are damaged are made again, and proved by their digests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tfshards.prep.files import bytes_digest
from tfshards.prep.output import locked
from tfshards.prep.proofs.files import rejects_path, rejects_problems, shard_problems
from tfshards.prep.proofs.rebuild import rebuild
from tfshards.prep.proofs.restore import SOURCES
from tfshards.prep.proofs.verify import verify
from tfshards.prep.scan import scan_shard
from tfshards.prep.sources.listing import Source
from tfshards.prep.views.labels import write_labels
from tfshards.prep.views.tfds import write_tfds_view
from tfshards.schemas import Manifest, Problem, read_manifest
from tfshards.schemas.atomic import write_atomically

# A source, or its inputs as the command line names them.
Inputs: TypeAlias = "Source | str | os.PathLike[str] | Sequence[str] | None"


@dataclass(frozen=True)
class Repair:
    """What became of a dataset.

    Attributes:
        found: what was wrong.
        repaired: the paths of the files that were made again.
        left: what still is wrong; files that were made again were read once more.
    """

    found: list[Problem]
    repaired: tuple[str, ...]
    left: list[Problem]


def repair(
    root: str | os.PathLike[str], source: Inputs = None, *, talk: Callable[[str], None] = lambda _: None
) -> Repair:
    """Make the damaged files of the dataset in ``root`` again, and no others; return what became of it.

    A file takes the place of a damaged one only if its digest is the one that the manifest says. If an error
    is raised, files that were mended before it stay so.

    Args:
        root: the dataset's directory.
        source: what it was built from: the image folder, the arrays or the table as they were given to
            ``build``, to which the manifest has the options; or a source with the options of then. Without
            it only indexes and labels are mended, which follow from their shards.
        talk: is told each file that is made again.

    Raises:
        OptionsError: there are more inputs than the dataset was built from.
        InputError: ``root`` is no dataset, another process is writing into it, or the inputs are not those
            that it was built from.
        FormatError: the manifest is damaged, so that nothing says what the dataset was.
    """
    folder = Path(root)
    read_manifest(folder)
    with locked(folder):
        manifest = read_manifest(folder)
        found = verify(folder)
        damaged = {problem.place for problem in found}
        repaired: list[str] = []
        for path in _made_again(folder, manifest, damaged, source):
            talk(f"{path}: made again")
            repaired.append(path)
        if manifest.options.get("source") in SOURCES:
            write_labels(manifest, folder)
            write_tfds_view(manifest, folder)
        left = [problem for problem in found if problem.place not in repaired]
        return Repair(found, tuple(repaired), left + list(_still_wrong(folder, manifest, repaired)))


def _made_again(folder: Path, manifest: Manifest, damaged: set[str], source: Inputs) -> Iterator[str]:
    """Yield the path of each file that was made again."""
    for shard in manifest.shards:
        if shard.path in damaged or not damaged & set(shard.beside):
            continue
        _, beside = scan_shard(folder, shard.path, manifest.compression, label=manifest.schema.label)
        for path, data in beside.items():
            if path in damaged and bytes_digest(data) == shard.beside[path]:
                (folder / path).parent.mkdir(exist_ok=True)
                write_atomically(folder / path, data)
                yield path
    if source and damaged & {rejects_path(manifest), *(shard.path for shard in manifest.shards)}:
        inputs = [os.fspath(source)] if isinstance(source, (str, os.PathLike)) else source
        yield from rebuild(folder, manifest, damaged, inputs)


def _still_wrong(folder: Path, manifest: Manifest, repaired: Sequence[str]) -> Iterator[Problem]:
    """Yield what is wrong with files that were made again, as they now are on the disk."""
    for shard in manifest.shards:
        if not {shard.path, *shard.beside}.isdisjoint(repaired):
            yield from (found for found in shard_problems(folder, shard) if found.place in repaired)
    if rejects_path(manifest) in repaired:
        yield from rejects_problems(folder, manifest)
