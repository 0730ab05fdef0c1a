"""What ``prep`` and ``loader`` agree on: features, the schema, the manifest, a shard's index and labels.

This room knows only the standard library and NumPy.
"""

from tfshards.schemas.errors import (
    BuildError,
    FormatError,
    InputError,
    OptionsError,
    Problem,
    TfshardsError,
    one_line,
)
from tfshards.schemas.feature import KINDS, Feature, Kind
from tfshards.schemas.index import RecordIndex, index_path, parse_index
from tfshards.schemas.labels import labels_bytes, labels_path, parse_labels
from tfshards.schemas.manifest import (
    FORMAT_VERSION,
    MANIFEST_NAME,
    Manifest,
    Shard,
    Split,
    Totals,
    file_problems,
    parse_manifest,
    read_manifest,
    write_manifest,
)
from tfshards.schemas.schema import Schema

__all__ = [
    "FORMAT_VERSION",
    "KINDS",
    "MANIFEST_NAME",
    "BuildError",
    "Feature",
    "FormatError",
    "InputError",
    "Kind",
    "Manifest",
    "OptionsError",
    "Problem",
    "RecordIndex",
    "Schema",
    "Shard",
    "Split",
    "TfshardsError",
    "Totals",
    "file_problems",
    "index_path",
    "labels_bytes",
    "labels_path",
    "one_line",
    "parse_index",
    "parse_labels",
    "parse_manifest",
    "read_manifest",
    "write_manifest",
]
