"""A headless Chromium for tests, driven by the DevTools protocol over two pipes."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One page, with what it has reported: exceptions, console messages, requests."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = os.fdopen(reading, "rb"), os.fdopen(writing, "wb")
        self._received = bytearray()
        self._number = 0
        self._session = ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, path: Path) -> None:
        """Open a file and wait until it is loaded."""
        self.errors, self.requests = [], []
        self._call("Page.navigate", url=path.resolve().as_uri())
        self._wait_for("Page.loadEventFired")

    def set_view(self, width: int, height: int = 900, *, scheme: str = "light", scale: float = 1) -> None:
        """Set the size in CSS pixels, and the color scheme that the user prefers."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def run(self, script: str) -> object:
        """Return the value of a script; its promise is awaited."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str, *, text: str = "") -> None:
        """Press and release a key, such as ``Tab`` or ``/``."""
        codes = {"Tab": 9, "Escape": 27, "Enter": 13, " ": 32}
        options = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0), "text": text}
        self._call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **options)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        """Type text into the focused element."""
        for letter in text:
            self.press(letter, text=letter)

    def _call(self, method: str, **options: object) -> dict:
        self._number += 1
        message = {"id": self._number, "method": method, "params": options}
        if self._session:
            message["sessionId"] = self._session
        self._writing.write(json.dumps(message).encode() + b"\0")
        self._writing.flush()
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                return found["result"]

    def _wait_for(self, method: str) -> None:
        while self._next().get("method") != method:
            pass

    def _next(self) -> dict:
        while b"\0" not in self._received:
            part = self._reading.read1(1 << 20)
            assert part, "Chromium has ended"
            self._received += part
        message, _, rest = bytes(self._received).partition(b"\0")
        self._received = bytearray(rest)
        return self._seen(json.loads(message))

    def _seen(self, message: dict) -> dict:
        method, values = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(values["exceptionDetails"].get("text", ""))
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning"):
            self.errors.append(str(values["args"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.errors.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        return message


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """Start Chromium with an empty profile in a folder, without a network, and end it."""
    assert PROGRAM
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    command = [
        # the protocol is read from descriptor 3 and written to descriptor 4
        *("bash", "-c", f'exec {{a}}<&{theirs_in} {{b}}>&{theirs_out}; exec "$@" 3<&$a 4>&$b', "bash"),
        PROGRAM,
        "--headless=new",
        "--remote-debugging-pipe",
        "--no-sandbox",
        "--no-first-run",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={folder}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(theirs_in, theirs_out)
        )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(ours_in, ours_out)
    finally:
        process.terminate()
        process.wait(30)
