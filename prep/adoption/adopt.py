"""A manifest for TFRecord files that were made elsewhere: the files stay as they are, and are read once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

from tfshards.prep.adoption.chosen_files import ChosenFiles, choose_files
from tfshards.prep.adoption.damage import find_damage
from tfshards.prep.adoption.files import labels_are_foreign, write_adopted
from tfshards.prep.adoption.manifest import SOURCE, AdoptOptions, Scanned, adopted_manifest
from tfshards.prep.adoption.roles import Roles
from tfshards.prep.adoption.seen import Findings
from tfshards.prep.meter import Meter
from tfshards.prep.output import difference, locked
from tfshards.prep.scan import scan_shard
from tfshards.prep.tfrecord import RecordError
from tfshards.schemas import MANIFEST_NAME, FormatError, InputError, Manifest, one_line, read_manifest
from tfshards.schemas.manifest import Compression


def to_stderr(line: str) -> None:
    """Print a line to standard error: the default for what adopting has to say on its way."""
    print(one_line(line), file=sys.stderr, flush=True)


def adopt(
    root: str | os.PathLike[str],
    options: AdoptOptions | None = None,
    *,
    overwrite: bool = False,
    talk: Callable[[str], None] = to_stderr,
) -> Manifest:
    """Make the TFRecord files in the folder ``root`` a dataset, and return its manifest.

    Every record is read and checked. Written are the manifest, the indexes, the labels of the shards if there
    is such a feature, and ``labels.txt`` if classes have names; the files themselves are not touched. If all
    that is there already, nothing is written.

    Args:
        root: the folder of the files.
        options: what they do not tell themselves.
        overwrite: replace a manifest of other files, records or options.
        talk: is given each line about what deserves a look.

    Raises:
        OptionsError: an option is wrong by itself.
        InputError: the files, or the options, do not make a dataset, or there is one already.
        FormatError: files or records are damaged, or no ``tf.train.Example``; it holds every problem.
    """
    options = options or AdoptOptions()
    folder = Path(root)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {what}; name a folder of TFRecord files")
    with locked(folder):
        current = _current(folder, overwrite=overwrite)
        chosen = choose_files(folder, options.splits, allow_missing=options.allow_missing, talk=talk)
        scanned = _scan_all(folder, chosen, options.roles)
        manifest = adopted_manifest(folder, chosen, scanned, options, talk)
        if current and not overwrite and current.to_text() != manifest.to_text():
            what = difference(current, manifest.options).replace("inputs", "files, records or class names")
            raise InputError(f"{folder} was adopted with other {what}; give --overwrite to adopt it again")
        if manifest.schema.class_names and labels_are_foreign(folder, current):
            talk(f"warning: {folder / 'labels.txt'} stays as it is; the class names are in {MANIFEST_NAME}")
        beside = {
            path: content
            for one in scanned.values()
            for path, content in {**one.index, **one.labels(manifest.schema)}.items()
        }
        if not write_adopted(folder, manifest, beside, current):
            talk(f"{folder} is up to date")
    return manifest


def _current(folder: Path, *, overwrite: bool) -> Manifest | None:
    """Return the manifest that is there, or None.

    Raises:
        InputError: it was not made by adopting, and may not be replaced.
        FormatError: it cannot be read, and may not be replaced.
    """
    if not (folder / MANIFEST_NAME).exists():
        return None
    try:
        current = read_manifest(folder)
    except FormatError:
        if overwrite:
            return None
        raise
    if current.options.get("source") != SOURCE:
        # its manifest knows what records do not tell, such as class names and what was rejected
        raise InputError(f"{folder} is a dataset already, build {current.build_id}, and needs no adoption")
    return current


def _scan_all(folder: Path, chosen: ChosenFiles, roles: Roles) -> dict[str, Scanned]:
    """Return what each file holds, read by threads.

    Raises:
        FormatError: records are damaged or are no examples; it holds every problem.
    """
    stop = threading.Event()
    with Meter("adopt", chosen.num_bytes) as meter, ThreadPoolExecutor(os.cpu_count() or 1) as pool:

        def scan(path: str) -> Scanned:
            scanned = _scan(folder, path, chosen.compression, roles, stop)
            meter.add((folder / path).stat().st_size)
            return scanned

        try:
            scanned = list(pool.map(scan, chosen.paths))
        except BaseException:
            # what others would still find changes nothing
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    problems = [problem for one in scanned for problem in one.found.all_problems()]
    if problems:
        raise FormatError(f"{folder} cannot be adopted, nothing was written", problems)
    return dict(zip(chosen.paths, scanned, strict=True))


def _scan(folder: Path, path: str, compression: Compression, roles: Roles, stop: threading.Event) -> Scanned:
    found = Findings(roles)

    def look(number: int, offset: int, data: bytes) -> None:
        if stop.is_set():
            raise CancelledError
        found.look(path, number, offset, data)

    try:
        shard, beside = scan_shard(folder, path, compression, look)
    except RecordError:
        return Scanned(None, {}, find_damage(folder, path, compression, Findings(roles)))
    return Scanned(shard, beside, found)
