"""The addresses of the servers of stores: which variables name them, and whether they are addresses."""

from __future__ import annotations

import os
import re

from tfshards.schemas.errors import InputError

# by scheme; obstore reads all but the emulator's
VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("STORAGE_EMULATOR_HOST", "GOOGLE_BASE_URL"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURITE_BLOB_STORAGE_URL"),
}
_ADDRESS = re.compile(
    r"https?://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?(?:/[^\s?#@]*)?", re.IGNORECASE
)
# the address of a request, without a user, a key or a query
_REQUESTED = re.compile(r"Error performing [A-Z]+ (https?://[^/\s?#@]+)(?=[/\s?#])")
_MOST_PORT = 65535


def check_endpoints(scheme: str) -> None:
    """Raise if a variable names no address; unset the empty ones, as the tools of the stores read them.

    With such an address obstore ends with a panic, which is not an ``Exception``.

    Raises:
        InputError: a variable is not an address; it is named, without a password that it may contain.
    """
    for variable in VARIABLES[scheme]:
        value = os.environ.get(variable)
        if value == "":
            del os.environ[variable]
        if not value:
            continue
        found = _ADDRESS.fullmatch(emulator_address(value) if variable == "STORAGE_EMULATOR_HOST" else value)
        if found is None or int(found["port"] or 0) > _MOST_PORT:
            shown = "" if "@" in value else f"={value}"
            raise InputError("endpoint-invalid", variable=variable, shown=shown)


def emulator_address(host: str) -> str:
    """Return the address that Google's own clients use for ``STORAGE_EMULATOR_HOST``."""
    return host if "://" in host else f"http://{host}"


def shown_address(text: str) -> str:
    """Return the address in an error of the client, with the variable that names it, or nothing."""
    found = _REQUESTED.search(text)
    if found is None:
        return ""
    for variables in VARIABLES.values():
        for variable in variables:
            value = os.environ.get(variable, "")
            if value and emulator_address(value).lower().rstrip("/").startswith(found[1].lower()):
                return f"{variable}={value}"
    return found[1]
