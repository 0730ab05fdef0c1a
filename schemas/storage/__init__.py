"""Files on local disks and in object stores, with the part of ``pathlib``'s interface that tfshards uses.

``any_path`` returns a ``pathlib.Path`` for a local path and a ``RemotePath`` for a URL. Both have the methods
that are used here; the functions of this package do what ``pathlib`` lacks.
"""

from tfshards.schemas.storage.any_path import (
    any_path,
    check_expanded,
    is_inside,
    is_remote,
    is_same,
    name_below,
    without_user,
)
from tfshards.schemas.storage.faults import ChangedError
from tfshards.schemas.storage.listing import RemoteStatus
from tfshards.schemas.storage.reader import in_flight
from tfshards.schemas.storage.remote_path import AnyPath, RemotePath
from tfshards.schemas.storage.untrusted import read_range, version_of, view_range
from tfshards.schemas.storage.writing import copy_file, link_file, open_sink, write_new

__all__ = [
    "AnyPath",
    "ChangedError",
    "RemotePath",
    "RemoteStatus",
    "any_path",
    "check_expanded",
    "copy_file",
    "in_flight",
    "is_inside",
    "is_remote",
    "is_same",
    "link_file",
    "name_below",
    "open_sink",
    "read_range",
    "version_of",
    "view_range",
    "without_user",
    "write_new",
]
