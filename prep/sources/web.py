"""Fetch files of web servers: with retries, time-outs, and limits for sizes and for the rate of requests."""

from __future__ import annotations

import base64
import os
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from tfshards.prep.sources.base import Rejected
from tfshards.prep.sources.fetching import Content
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage.reading import NUM_REQUESTS

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

# Of a larger file, which a server need not announce, many at a time would not fit into memory.
MOST_BYTES = 64 << 20
# What is read before it is needed; a larger file is then fetched when it is.
AHEAD_BYTES = 4 << 20
_WEB = re.compile(rb"https?://", re.IGNORECASE)
_ATTEMPTS, _FIRST_WAIT, _LONGEST_WAIT = 6, 0.25, 60.0
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_GONE = frozenset({404, 410})
_CONNECT_SECONDS, _READ_SECONDS, _WHOLE_SECONDS = 5, 15, 300
_BLOCK = 64 << 10
_REDIRECTS = 5


def is_web(path: bytes) -> bool:
    """Return whether a path is a URL of a web server."""
    return _WEB.match(path) is not None


def shown_url(path: bytes) -> bytes:
    """Return a path, or a URL of a web server without what may be secret: user, password and query."""
    if not is_web(path):
        return path
    try:
        parts = urlsplit(path)
        host = parts.netloc.rpartition(b"@")[2]
        return urlunsplit((parts.scheme, host, parts.path, b"", b""))
    except ValueError:
        return re.split(rb"[?#]", path)[0].rpartition(b"@")[2]


class Pace(NamedTuple):
    """A limit for the rate of requests of all processes of a machine.

    Attributes:
        path: a file that the processes share.
        per_second: number of requests per second.
    """

    path: str
    per_second: float

    def wait(self) -> None:
        """Wait for the turn of a request."""
        with _locked(self.path) as file:
            now = time.time()
            text = os.pread(file, 32, 0)
            # after a change of the clock, the turns start again
            turn = min(max(now, float(text or 0)), now + _LONGEST_WAIT + NUM_REQUESTS / self.per_second)
            os.pwrite(file, b"%032.9f" % (turn + 1 / self.per_second), 0)
        time.sleep(turn - now)


@contextmanager
def _locked(path: str) -> Iterator[int]:
    import fcntl

    with _waiting:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


_waiting = threading.Lock()


def fetch(path: bytes, most_bytes: int, pace: Pace | None) -> Content | Rejected:
    """Return a file of a web server; of a larger one than ``most_bytes``, without its bytes.

    A file that does not exist there is rejected; anything else may be different later.

    Raises:
        InputError: the server cannot be reached, or does not give the file.
    """
    from urllib3.exceptions import HTTPError, LocationParseError, LocationValueError

    url = path.decode("utf-8", "replace")
    shown = shown_url(path).decode("utf-8", "replace")
    if not _is_url(url):
        return Rejected("missing", "this is no URL of a web server")
    fault = ""
    for attempt in range(_ATTEMPTS):
        if pace:
            pace.wait()
        wait = min(_FIRST_WAIT * 2**attempt, 10.0) * random.uniform(0.75, 1.25)
        try:
            response = _get(url)
            try:
                if response.status in _GONE:
                    return Rejected("missing", f"the server answered {_status(response)}")
                if response.status == 200:
                    return _content(response, most_bytes)
                fault = f"the server answered {_status(response)}"
                if response.status not in _RETRIED:
                    raise InputError(
                        f"{shown}: cannot be read: {fault}; correct the table, or the access to it"
                    )
                wait = _retry_after(response) or wait
            finally:
                response.close()
        except (LocationParseError, LocationValueError):
            raise InputError(f"{shown}: cannot be read: {_REDIRECTED}; correct the table") from None
        except HTTPError as error:
            # the text of the error has the query of the URL
            fault = _FAULTS.get(
                type(getattr(error, "reason", None) or error).__name__, "the connection failed"
            )
        if attempt + 1 < _ATTEMPTS:
            time.sleep(wait)
    raise InputError(
        f"{shown}: cannot be read: {fault}, at {_ATTEMPTS} attempts; run the same command again to resume"
    )


_REDIRECTED = "the server redirects to a URL that is not of a web server"
_FAULTS = {
    "ConnectTimeoutError": "the server did not answer in time",
    "ReadTimeoutError": "the server did not answer in time",
    "NameResolutionError": "the name of the server is not known",
    "NewConnectionError": "no server answers at this address",
    "SSLError": "its certificate is not valid",
    "IncompleteRead": "the connection was cut while data were sent",
    "ResponseError": "the server redirects too often",
}


def require_web() -> None:
    """Raise OptionsError unless the client of web servers is installed."""
    try:
        import urllib3  # noqa: F401
    except ImportError:
        raise OptionsError(
            "images of web servers need the extra remote; install it: pip install 'tfshards[remote]'"
        ) from None


def _is_url(url: str) -> bool:
    from urllib3.exceptions import LocationParseError
    from urllib3.util import parse_url

    try:
        parts = parse_url(url)
        urlsplit(url)
    except (LocationParseError, ValueError):
        return False
    return bool(parts.host)


def _get(url: str) -> BaseHTTPResponse:
    from urllib3 import Retry, Timeout

    user, at, _ = urlsplit(url).netloc.rpartition("@")
    headers = {"User-Agent": "tfshards", "Accept-Encoding": "identity"}
    if at:
        headers["Authorization"] = "Basic " + base64.b64encode(unquote(user).encode()).decode("ascii")
    return _client(url).request(
        "GET",
        url,
        headers=headers,
        preload_content=False,
        decode_content=False,
        timeout=Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
        retries=Retry(_REDIRECTS, connect=0, read=0, status=0, other=0, respect_retry_after_header=False),
    )


def _client(url: str) -> PoolManager:
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme.lower())
    return _pool(os.getpid(), None if not proxy or proxy_bypass(parts.hostname or "") else proxy)


@cache
def _pool(_process: int, proxy: str | None) -> PoolManager:
    from urllib3 import PoolManager, ProxyManager

    if proxy:
        return ProxyManager(proxy, maxsize=NUM_REQUESTS)
    return PoolManager(maxsize=NUM_REQUESTS)


def _content(response: BaseHTTPResponse, most_bytes: int) -> Content | Rejected:
    from urllib3.exceptions import ReadTimeoutError

    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        # it could become any size
        return Rejected(
            "unreadable", f"the server sent the encoding {encoding[:30]!r} without being asked for it"
        )
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and int(length) > most_bytes:
        return Content(int(length), 0, None)
    started = time.monotonic()
    data = bytearray()
    while block := response.read(_BLOCK):
        data += block
        if len(data) > most_bytes:
            return Content(len(data), 0, None)
        if time.monotonic() - started > _WHOLE_SECONDS:
            raise ReadTimeoutError(None, "", "too slow")  # type: ignore[arg-type]
    return Content(len(data), 0, bytes(data))


def _retry_after(response: BaseHTTPResponse) -> float | None:
    """Return the seconds for which the server asks, which are bounded; None for no number."""
    text = response.headers.get("Retry-After", "").strip()
    return min(float(text), _LONGEST_WAIT) if text.isdecimal() else None


def _status(response: BaseHTTPResponse) -> str:
    return f"{response.status} {(response.reason or '')[:40]}".strip()
