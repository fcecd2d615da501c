"""Debian's chromium, without a window, over its debugging pipe; for tests of pages."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import needs
import pytest
from harness import eventually

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason=needs.reason("chromium"))
START_S = 60.0


class Browser:
    """One page of one browser; commands and answers are JSON between NULs on two pipes."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        to_read, self._to = os.pipe()
        self._from, from_write = os.pipe()
        # The browser wants them as 3 and 4; what it says itself goes nowhere.
        shell = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        options += ["--disable-dev-shm-usage", "--no-proxy-server", "--hide-scrollbars"]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, CHROMIUM, *options, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        # A browser that hangs ends, and with it every wait for its words.
        self._timer = threading.Timer(4 * START_S, self._process.kill)
        self._timer.start()
        self._have = b""
        self._number = 0
        self._session: str | None = None
        self.said: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        asked: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.said.append(answer)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, url: str, width: int, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self.call("Page.navigate", url=url)
        eventually(
            lambda: (
                self.run("document.readyState") == "complete" and self.run("location.href") == url
            ),
            f"{url} is loaded",
            START_S,
        )

    def picture(self, path: Path) -> None:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """The browser's complaints: exceptions, policy violations, resources that did not load."""
        self.run("0")
        found = []
        for one in self.said:
            name, about = one.get("method"), one.get("params", {})
            bad_entry = name == "Log.entryAdded" and about["entry"]["level"] == "error"
            if name in ("Runtime.exceptionThrown", "Network.loadingFailed") or bad_entry:
                found.append(json.dumps(about))
        return found

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._have:
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has ended"
            self._have += part
        text, _, self._have = self._have.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer
