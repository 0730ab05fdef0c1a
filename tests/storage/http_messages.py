"""Read the requests and answers of HTTP/1.1 from a stream, as they are on the wire."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

BLOCK = 1 << 16


@dataclass(frozen=True)
class Head:
    """The first lines of a request or an answer, as received."""

    lines: list[bytes]
    fields: dict[str, str]

    def content(self, without: tuple[str, ...] = (), **added: str) -> bytes:
        """Return the bytes, without some fields (in lower case) and with others."""
        kept = [one for one in self.lines[1:] if one.split(b":")[0].decode("latin-1").lower() not in without]
        more = [f"{name.replace('_', '-')}: {value}".encode() for name, value in added.items()]
        return b"\r\n".join([self.lines[0], *kept, *more, b"", b""])


async def read_head(reader: asyncio.StreamReader) -> Head:
    """Read up to the empty line; an answer 100 is skipped."""
    while True:
        lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        if not lines[0].startswith(b"HTTP/1.1 100"):
            break
    pairs = [line.decode("latin-1").split(":", 1) for line in lines[1:]]
    return Head(lines, {name.lower(): value.strip() for name, value in pairs})


async def body_blocks(
    reader: asyncio.StreamReader, head: Head, method: str, status: int = 0
) -> AsyncIterator[bytes]:
    """Yield the body of a request (status 0) or of an answer, with the sizes of its chunks if it has any."""
    if status and has_no_body(method, status):
        return
    if "chunked" in head.fields.get("transfer-encoding", "").lower():
        size = -1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            yield line + await reader.readexactly(size + 2)
    elif "content-length" in head.fields:
        left = int(head.fields["content-length"])
        while left:
            block = await reader.read(min(left, BLOCK))
            if not block:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(block)
            yield block
    elif status:
        while block := await reader.read(BLOCK):
            yield block


def is_delimited(head: Head) -> bool:
    """Return whether the message says where its body ends."""
    return "content-length" in head.fields or "transfer-encoding" in head.fields


def has_no_body(method: str, status: int) -> bool:
    """Return whether such an answer never has a body."""
    return method == "HEAD" or status in (204, 304)
