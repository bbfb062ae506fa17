"""Drives Debian's chromium over the DevTools protocol, through pipes and without any package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS = 30.0

# Every pair of texts that a reader sees on top of each other by more than a pixel. What scrolls is seen in its window.
_OVERLAPS = """
(() => {
  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("title, script, style") || !element.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rect of range.getClientRects()) {
      let [left, top, right, bottom] = [rect.left, rect.top, rect.right, rect.bottom];
      for (let above = element; above && above !== document.body; above = above.parentElement) {
        if (getComputedStyle(above).overflow === "visible" || above.closest("svg")) continue;
        const frame = above.getBoundingClientRect();
        left = Math.max(left, frame.left); right = Math.min(right, frame.right);
        top = Math.max(top, frame.top); bottom = Math.min(bottom, frame.bottom);
      }
      if (right - left > 1 && bottom - top > 1) boxes.push({ node, left, top, right, bottom });
    }
  }
  const found = [];
  boxes.forEach((a, index) => boxes.slice(index + 1).forEach((b) => {
    if (a.node === b.node) return;
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 1) found.push(`${a.node.data.trim()} | ${b.node.data.trim()} (${wide} x ${high})`);
  }));
  return found;
})()
"""

# Every text of a drawing that reaches out of it, and every text that its box hides without a way to scroll to it.
_CUT = """
(() => {
  const found = [];
  for (const text of document.querySelectorAll("svg text")) {
    const [inner, outer] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
    const over = Math.max(outer.left - inner.left, inner.right - outer.right, outer.top - inner.top,
      inner.bottom - outer.bottom);
    if (over > 1) found.push(`${text.textContent} (by ${over})`);
  }
  for (const box of document.querySelectorAll("body *")) {
    const hides = ["hidden", "clip"].includes(getComputedStyle(box).overflowX);
    if (hides && !box.closest(".name, svg") && box.scrollWidth > box.clientWidth + 1) found.push(box.className);
  }
  return found;
})()
"""

# Of a page these are told on the way; the rest is asked for.
_DOMAINS = ("Page", "Runtime", "Log", "Network")


def find_browser() -> str | None:
    """The program to run, or None where there is none."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


class Browser:
    """A headless browser: ``with Browser(program) as browser``."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="closefar-browser-")
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        options = [
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._folder}",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",
        ]
        if os.geteuid() == 0:
            options.append("--no-sandbox")
        # The protocol is on descriptors 3 and 4.
        plumbing = f'exec "$0" "$@" 3</dev/fd/{theirs_in} 4>/dev/fd/{theirs_out}'
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", plumbing, program, *options, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._unread = b""
        self._last_id = 0
        self._events: list[dict[str, Any]] = []
        self.version = self.call("Browser.getVersion")["product"]

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (TimeoutError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._to)
            os.close(self._from)
            shutil.rmtree(self._folder, ignore_errors=True)

    def open(
        self, path: Path, *, width: int = 1280, dark: bool = False, print_view: bool = False, scripts: bool = True
    ) -> Page:
        """Open a file in a window of that width and wait until it is loaded; without `scripts` its own do not run."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in _DOMAINS:
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", media="print" if print_view else "", features=[scheme])
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        page.call("Page.navigate", url=path.resolve().as_uri())
        self.wait(lambda: any(event["method"] == "Page.loadEventFired" for event in page.events()))
        page.evaluate("document.fonts.ready.then(() => true)")
        return page

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send one command and return its result."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        answers: list[dict[str, Any]] = []

        def answered() -> bool:
            answers.extend(event for event in self._events if event.get("id") == self._last_id)
            return bool(answers)

        self.wait(answered)
        (answer,) = answers
        self._events.remove(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def wait(self, done: Callable[[], bool]) -> None:
        """Read what the browser says until it is done."""
        end = time.monotonic() + _SECONDS
        while not done():
            if not select.select([self._from], [], [], max(end - time.monotonic(), 0.0))[0]:
                raise TimeoutError(f"the browser said nothing for {_SECONDS:g} seconds")
            chunk = os.read(self._from, 1 << 16)
            if not chunk:
                raise TimeoutError(f"the browser ended with code {self._process.wait()}")
            *messages, self._unread = (self._unread + chunk).split(b"\0")
            self._events += [json.loads(message) for message in messages]

    def events_of(self, session: str) -> list[dict[str, Any]]:
        return [event for event in self._events if event.get("sessionId") == session and "method" in event]


class Page:
    """One open file."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def events(self) -> list[dict[str, Any]]:
        return self._browser.events_of(self._session)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, awaited, as if a person had caused it."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Every error or warning of the console, and every exception."""
        found = []
        for event in self.events():
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(params["args"]))
        return found

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        events = self.events()
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def overlaps(self) -> list[str]:
        """Every two texts that lie on top of each other."""
        found: list[str] = self.evaluate(_OVERLAPS)
        return found

    def cut(self) -> list[str]:
        """Every text that is not wholly seen."""
        found: list[str] = self.evaluate(_CUT)
        return found

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def screenshot(self, path: Path) -> None:
        """Save a picture of the whole page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """The page as printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
