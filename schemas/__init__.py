"""The format that ``prep`` and ``loader`` share: schema, manifest, companions of a shard, and errors.

This package imports only the standard library and NumPy. Its names are for users; ``prep`` and ``loader``
import everything else from its modules.
"""

from tfshards.schemas.errors import (
    BuildError,
    FormatError,
    InputError,
    OptionsError,
    Problem,
    TfshardsError,
)
from tfshards.schemas.manifest import Manifest, read_manifest
from tfshards.schemas.schema import Feature, Schema
from tfshards.schemas.split import Shard, Split, Totals

__all__ = [
    "BuildError",
    "Feature",
    "FormatError",
    "InputError",
    "Manifest",
    "OptionsError",
    "Problem",
    "Schema",
    "Shard",
    "Split",
    "TfshardsError",
    "Totals",
    "read_manifest",
]
