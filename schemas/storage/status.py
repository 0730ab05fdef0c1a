"""What a store knows about an object."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple


class RemoteStatus(NamedTuple):
    """What a store knows about an object.

    Attributes:
        st_size: its size in bytes.
        st_mtime_ns: when it was written, in nanoseconds since 1970; many stores know whole seconds.
        e_tag: what changes with its content; see RFC 9110, section 8.8.3.
        version: what the store calls this version of it, or nothing.
    """

    st_size: int
    st_mtime_ns: int
    e_tag: str
    version: str


def status_of(meta: Any) -> RemoteStatus:  # noqa: ANN401 -- obstore's ObjectMeta, a dict
    """Return the status in the form that obstore has."""
    modified: datetime = meta["last_modified"]
    nanoseconds = int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000
    e_tag = meta["e_tag"] or ""
    # Azure's listings leave out the quotation marks, without which no condition matches.
    quoted = f'"{e_tag}"' if e_tag and '"' not in e_tag else e_tag
    return RemoteStatus(meta["size"], nanoseconds, quoted, meta["version"] or "")
