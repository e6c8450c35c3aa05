"""A real browser for tests of pages: Chromium without a window, spoken to through pipes (DevTools)."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
DEADLINE_S = 120.0


def find_browser() -> str | None:
    """The program, or None where none is installed."""
    named = os.environ.get("HIGHWATER_BROWSER")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One tab. requests: the addresses that pages asked for; messages: what went wrong in their scripts."""

    def __init__(self, program: str, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        # the protocol is spoken on descriptors 3 and 4 (--remote-debugging-pipe)
        enter = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'
        self._process = subprocess.Popen(
            [
                "bash", "-c", enter, str(to_read), str(to_write), program, "--headless=new",
                "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
                f"--user-data-dir={home}", "about:blank",
            ],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=os.environ | {"HOME": str(home)},
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest = 0, b""
        self._session: str | None = None
        self.requests: list[str] = []
        self.messages: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def open(self, page: Path | str, *, width: int = 1100, height: int = 900, dark: bool = False) -> None:
        """Show a file or an address, as a reader whose system is light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.requests.clear()
        self.messages.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self.wait_for(
            "document.readyState === 'complete' && document.documentElement?.dataset.drawn === 'yes'"
        )

    def eval(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Until it is true."""
        until = time.monotonic() + DEADLINE_S
        while not self.eval(expression):
            assert time.monotonic() < until, f"never true: {expression}; {self.messages}"
            time.sleep(0.02)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """kind: `Moved`, `Pressed` or `Released`."""
        buttons = {"button": "left", "clickCount": 1} if kind != "Moved" else {}
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **buttons)

    def key(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, path: Path, *, whole: bool = True) -> Path:
        """A PNG of the page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + DEADLINE_S
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            read = os.read(self._in, 1 << 20)
            assert read, f"the browser is gone: {self._process.poll()}"
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.messages.append(str(told["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.messages.append(told["entry"]["text"])

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
