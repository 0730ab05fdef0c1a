"""Fixtures for object stores: servers, which run until the end of the session, and a new bucket per test.

``running_servers`` is in tests/conftest.py, because the tests of other folders use the same servers.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import obstore.store
import pytest

from tests.tables import mostly_nightly
from tfshards.schemas.storage import any_path

from .faults import FaultProxy
from .servers import SERVERS, Server, create_bucket, s3_client

STORES = ["moto", "fake-gcs", "azurite"]
each_store = pytest.mark.parametrize("server", mostly_nightly(STORES, STORES[:1]), indirect=True)
_PROGRAMS = {"azurite": "node"}
_VARIABLES = ("AWS_", "GOOGLE_", "AZURE_", "AZURITE_", "STORAGE_EMULATOR_HOST", "GCS_")


@dataclass
class RunningServers:
    """The servers that tests have asked for; each starts when the first test asks for it."""

    logs: Path
    stack: ExitStack
    found: dict[str, Server] = field(default_factory=dict)

    def get(self, name: str) -> Server:
        """Return the server of a name of ``SERVERS``; skip the test if this machine cannot fetch it."""
        if name not in self.found:
            program = _PROGRAMS.get(name)
            if program and not shutil.which(program):
                pytest.skip(f"{program} is not installed, and {name} needs it")
            try:
                self.found[name] = self.stack.enter_context(SERVERS[name](self.logs))
            except SystemExit as error:
                pytest.skip(f"{name} could not be fetched: {error}")
        return self.found[name]


@dataclass(frozen=True)
class Bucket:
    """An empty bucket, which obstore reaches with the environment of the test."""

    server: Server
    name: str

    @property
    def url(self) -> str:
        """The URL of the bucket, without a slash at the end."""
        return f"{self.server.url_scheme}://{self.name}"

    def store(self) -> obstore.store.ObjectStore:
        """Return the bucket as obstore sees it with its defaults."""
        return obstore.store.from_url(self.url)


@pytest.fixture
def server(request, running_servers, monkeypatch) -> Server:
    """Return the server whose name is the parameter (moto without one); the environment names no other."""
    server = running_servers.get(getattr(request, "param", "moto"))
    lead_to(server, monkeypatch)
    return server


def lead_to(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the environment name this server and no other."""
    for variable in list(os.environ):
        if variable.startswith(_VARIABLES):
            monkeypatch.delenv(variable)
    for variable, value in server.environment.items():
        monkeypatch.setenv(variable, value)


@pytest.fixture
def proxy(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """Put a proxy before the server, through which the environment leads from now on."""
    with FaultProxy(server.endpoint) as proxy:
        for variable, value in server.behind(proxy.endpoint).environment.items():
            monkeypatch.setenv(variable, value)
        yield proxy


@pytest.fixture
def bucket(server: Server) -> Bucket:
    """Return a new bucket of the server."""
    return new_bucket(server)


def new_bucket(server: Server) -> Bucket:
    """Create a bucket of the server."""
    name = f"bucket-{uuid4()}"
    create_bucket(server, name)
    return Bucket(server, name)


@pytest.fixture
def upload(bucket: Bucket) -> Callable[..., str]:
    """Copy a folder into the bucket, and return its URL."""

    def run(folder: Path, prefix: str = "data") -> str:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                bucket.store().put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"{bucket.url}/{prefix}"

    return run


def objects(url: str) -> dict[str, bytes]:
    """Return the content of every object below a URL by its key from there."""
    root = any_path(url)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path, _ in root.files_below()}


def uploads(bucket: Bucket) -> list[str]:
    """Return the keys of unfinished multipart uploads, which only S3 lists."""
    if bucket.server.url_scheme != "s3":
        return []
    found = s3_client(bucket.server).list_multipart_uploads(Bucket=bucket.name)
    return [upload["Key"] for upload in found.get("Uploads", ())]
