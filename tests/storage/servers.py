"""Start object stores on free ports of the loopback interface, and make buckets in them.

Each server keeps its objects in memory and ends with the block that runs it. ``environment`` of a ``Server``
is all that obstore needs to reach it with nothing but a URL, in this process or in another one. What pip does
not install is fetched once, into the folder of the engines (tests/engines/setup_engines.py).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import cache
from pathlib import Path
from urllib.error import HTTPError, URLError

import boto3
from botocore.client import BaseClient

from tests.engines.processes import free_port, running, start
from tests.engines.setup_engines import engines_folder, fetching, run

FAKE_GCS = "1.56.1"
# The newest release that Node 20 runs.
AZURITE = "3.35.0"


def fake_gcs_path() -> Path:
    """Return the path of the program of fake-gcs-server."""
    return engines_folder() / "bin" / f"fake-gcs-server-{FAKE_GCS}"


def azurite_folder() -> Path:
    """Return the folder into which npm installs Azurite."""
    return engines_folder() / f"azurite-{AZURITE}"


def set_up_fake_gcs() -> None:
    """Compile fake-gcs-server."""
    with fetching(fake_gcs_path()) as partial:
        if partial:
            partial.mkdir()
            run("go", "install", f"github.com/fsouza/fake-gcs-server@v{FAKE_GCS}", GOBIN=str(partial))
            (partial / "fake-gcs-server").rename(fake_gcs_path())


def set_up_azurite() -> None:
    """Fetch Azurite."""
    with fetching(azurite_folder()) as partial:
        if partial:
            partial.mkdir()
            # fmt: off
            run("npm", "install", "--no-audit", "--no-fund", "--omit=dev",
                "--prefix", str(partial / "installed"), f"azurite@{AZURITE}")
            # fmt: on
            (partial / "installed").rename(azurite_folder())


_HERE = Path(__file__).parent


_ACCESS_KEY = "test-access-key"


_SECRET_KEY = "test-secret-key"
# the account that every installation of Azurite has, from its documentation
_AZURITE_ACCOUNT = "devstoreaccount1"


_AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


_ON_LOOPBACK = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


@dataclass(frozen=True)
class Server:
    """An object store that answers, and the environment variables with which a program reaches it."""

    url_scheme: str
    endpoint: str
    environment: Mapping[str, str]

    def behind(self, endpoint: str) -> Server:
        """Return the server as programs see it that reach it through the proxy at ``endpoint``."""
        variables = {name: value.replace(self.endpoint, endpoint) for name, value in self.environment.items()}
        return replace(self, endpoint=endpoint, environment=variables)


@contextmanager
def moto(logs: Path) -> Iterator[Server]:
    """Run moto's S3."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    service = start("moto", [sys.executable, _HERE / "moto_server.py", str(port)], logs)
    with running(service, _answers(endpoint)):
        yield Server("s3", endpoint, _s3_environment(endpoint))


@contextmanager
def fake_gcs(logs: Path) -> Iterator[Server]:
    """Run fake-gcs-server and, in front of it, the XML interface through which obstore writes."""
    set_up_fake_gcs()
    port = free_port()
    json_api = f"http://127.0.0.1:{port}"
    # fmt: off
    command = [
        fake_gcs_path(), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port),
        "-backend", "memory", "-public-host", f"127.0.0.1:{port}", "-external-url", json_api,
        "-log-level", "warn",
    ]
    # fmt: on
    with running(start("fake-gcs-server", command, logs), _answers(f"{json_api}/_internal/healthcheck")):
        front = free_port()
        endpoint = f"http://127.0.0.1:{front}"
        service = start("gcs-xml", [sys.executable, _HERE / "gcs_xml.py", str(front), json_api], logs)
        with running(service, _answers(f"{endpoint}/storage/v1/b")):
            environment = {
                "GOOGLE_BASE_URL": endpoint,
                "GOOGLE_ALLOW_HTTP": "true",
                # with GOOGLE_SKIP_SIGNATURE obstore reads, but still asks for a token before it writes
                "GOOGLE_BEARER_TOKEN": "test-token",
                # obstore does not know this variable; Google's own clients do
                "STORAGE_EMULATOR_HOST": endpoint,
                **_ON_LOOPBACK,
            }
            yield Server("gs", endpoint, environment)


@contextmanager
def azurite(logs: Path) -> Iterator[Server]:
    """Run the blob service of Azurite."""
    set_up_azurite()
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    program = azurite_folder() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    # fmt: off
    command = [
        "node", program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence",
        "--silent", "--skipApiVersionCheck", "--disableTelemetry",
    ]
    # fmt: on
    with running(start("azurite", command, logs), _answers(endpoint)):
        environment = {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": endpoint,
            "AZURE_STORAGE_ACCOUNT_NAME": _AZURITE_ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _AZURITE_KEY,
            "AZURE_ALLOW_HTTP": "true",
            **_ON_LOOPBACK,
        }
        yield Server("az", endpoint, environment)


SERVERS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "moto": moto,
    "fake-gcs": fake_gcs,
    "azurite": azurite,
}


def create_bucket(server: Server, name: str) -> None:
    """Create a bucket, which obstore cannot."""
    if server.url_scheme == "s3":
        s3_client(server).create_bucket(Bucket=name)
    elif server.url_scheme == "gs":
        body = json.dumps({"name": name}).encode()
        _send("POST", f"{server.endpoint}/storage/v1/b", {"Content-Type": "application/json"}, body)
    else:
        _create_container(server, name)


def s3_client(server: Server) -> BaseClient:
    """Return a client for what obstore has no call for, such as listing unfinished uploads."""
    return _s3_client(server.endpoint)


@cache
def _s3_client(endpoint: str) -> BaseClient:
    environment = _s3_environment(endpoint)
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
    )


def _s3_environment(endpoint: str) -> Mapping[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": _SECRET_KEY,
        "AWS_REGION": "us-east-1",
        **_ON_LOOPBACK,
    }


def _create_container(server: Server, name: str) -> None:
    """Create a container of Azurite, signed with its key."""
    path = f"/{_AZURITE_ACCOUNT}/{name}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06", "Content-Length": "0"}
    signed_headers = "".join(f"{key}:{headers[key]}\n" for key in ("x-ms-date", "x-ms-version"))
    text = "PUT" + "\n" * 12 + f"{signed_headers}/{_AZURITE_ACCOUNT}{path}\nrestype:container"
    digest = hmac.new(base64.b64decode(_AZURITE_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {_AZURITE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    _send("PUT", f"{server.endpoint}{path}?restype=container", headers)


def _answers(url: str) -> Callable[[], bool]:
    """Return a function that returns whether the URL answers, with whatever status."""

    def is_ready() -> bool:
        try:
            _send("GET", url, {})
        except HTTPError:
            return True
        except (URLError, OSError):
            return False
        return True

    return is_ready


def _send(method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    """Send a request to this machine, without the proxies of the environment, and return the answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, body, dict(headers), method=method)
    with opener.open(request, timeout=5) as answer:
        return bytes(answer.read())
