"""Files on local disks and in object stores, with one interface.

``any_path`` returns a ``LocalPath`` or a ``RemotePath``. Both have the methods of ``pathlib.Path`` that are
used here, and those of ``Stored``, which say what ``pathlib`` lacks.
"""

from tfshards.schemas.storage.local import LocalPath
from tfshards.schemas.storage.paths import AnyPath, any_path
from tfshards.schemas.storage.reader import RemoteStatus, in_flight
from tfshards.schemas.storage.remote import RemotePath
from tfshards.schemas.storage.stores import ChangedError

__all__ = ["AnyPath", "ChangedError", "LocalPath", "RemotePath", "RemoteStatus", "any_path", "in_flight"]
