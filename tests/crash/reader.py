"""A reader of datasets in memory, written from docs/format.md, which knows nothing of tfshards."""

import gzip
import hashlib
import json
import struct
from collections.abc import Mapping

POINTER = "dataset.json"


def examples(files: Mapping[str, bytes], folder: str, pointer: bytes) -> dict[str, list[bytes]]:
    """Return the records of each split that a pointer names.

    Args:
        files: contents by path.
        folder: the path of the dataset among them.
        pointer: content of its ``dataset.json``, or what that was earlier.

    Raises:
        ValueError: a file is missing or damaged.
    """
    manifest = json.loads(pointer)
    found: dict[str, list[bytes]] = {}
    for name, split in manifest["splits"].items():
        found[name] = []
        for shard in split["shards"]:
            path = f"{folder}/{shard['path']}"
            parent, _, last = path.rpartition("/")
            index = f"{parent}/index/{last}.idx"
            for file, digest in ((path, shard["digest"]), (index, shard["index_digest"])):
                if file not in files:
                    raise ValueError(f"{file} is missing")
                if f"sha256:{hashlib.sha256(files[file]).hexdigest()}" != digest:
                    raise ValueError(f"{file} has other bytes than dataset.json says")
            data = gzip.decompress(files[path]) if manifest["compression"] == "gzip" else files[path]
            records, lines, offset = [], [], 0
            while offset < len(data):
                (length,) = struct.unpack_from("<Q", data, offset)
                records.append(data[offset + 12 : offset + 12 + length])
                lines.append(f"{offset} {length + 16}\n")
                offset += length + 16
            if "".join(lines).encode() != files[index] or len(records) != shard["num_examples"]:
                raise ValueError(f"{path} has other records than its index or dataset.json")
            found[name] += records
    return found
