"""Files on local disks and in object stores, with the part of ``pathlib``'s interface that tfshards uses.

``any_path`` returns a ``pathlib.Path`` for a local path and a ``RemotePath`` for a URL. Both have the methods
that are used here; the functions of this package do what ``pathlib`` lacks, and answer what differs.
"""

from tfshards.schemas.storage.any_path import AnyPath, RemotePath, any_path, is_remote
from tfshards.schemas.storage.reader import RemoteStatus, in_flight
from tfshards.schemas.storage.stores import ChangedError
from tfshards.schemas.storage.untrusted import read_range, view_range

__all__ = [
    "AnyPath",
    "ChangedError",
    "RemotePath",
    "RemoteStatus",
    "any_path",
    "in_flight",
    "is_remote",
    "read_range",
    "view_range",
]
