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
    const style = getComputedStyle(box); // what is clipped away is there for screen readers only
    const hides = ["hidden", "clip"].includes(style.overflowX) && style.clipPath !== "inset(50%)";
    if (hides && !box.closest(".name, svg") && box.scrollWidth > box.clientWidth + 1) found.push(box.className);
  }
  return found;
})()
"""

# Of a page these are told on the way; the rest is asked for.
_DOMAINS = ("Page", "Runtime", "Log", "Network")


def _key_code(key: str) -> tuple[str, int]:
    """The physical key and its number."""
    if len(key) == 1 and key.isascii() and key.isalnum():
        return f"{'Digit' if key.isdigit() else 'Key'}{key.upper()}", ord(key.upper())
    numbers = {" ": 32, "Enter": 13, "Tab": 9, "Backspace": 8, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
    return "Space" if key == " " else key, numbers[key]


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
        self,
        place: Path | str,
        *,
        width: int = 1280,
        dark: bool = False,
        print_view: bool = False,
        scripts: bool = True,
        touch: bool = False,
        person: str | None = None,
    ) -> Page:
        """Open a file or an address in a window of that width and wait until it is loaded.

        Without `scripts` its own do not run.  With `touch` it is on a device with a touch screen.  Pages of a `person`
        share cookies and storage with each other, and with no other page.
        """
        apart = {} if person is None else {"browserContextId": person}
        target = self.call("Target.createTarget", url="about:blank", **apart)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in _DOMAINS:
            page.call(f"{domain}.enable")
        page.resize(width)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", media="print" if print_view else "", features=[scheme])
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        if touch:
            page.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=1)
        page.call("Page.navigate", url=place if isinstance(place, str) else place.resolve().as_uri())
        self.wait(lambda: any(event["method"] == "Page.loadEventFired" for event in page.events()))
        page.evaluate("document.fonts.ready.then(() => true)")
        return page

    def new_person(self) -> str:
        """Somebody else with the same browser: cookies and storage of their own."""
        identity: str = self.call("Target.createBrowserContext")["browserContextId"]
        return identity

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

    def take_events(self, session: str, method: str) -> list[dict[str, Any]]:
        """Return the events of one kind and forget them."""
        found = [event for event in self.events_of(session) if event["method"] == method]
        self._events = [event for event in self._events if event not in found]
        return found


class Page:
    """One open page."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def events(self) -> list[dict[str, Any]]:
        return self._browser.events_of(self._session)

    def take(self, method: str) -> list[dict[str, Any]]:
        """The events of one kind, each of them once."""
        return self._browser.take_events(self._session, method)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, awaited, as if a person had caused it."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait_for(self, condition: str, seconds: float = 20.0) -> None:
        """Wait until an expression is true in the page."""
        watch = (
            f"new Promise((done) => {{ const end = performance.now() + {1000 * seconds};"
            f" const watch = () => {{ const is = ({condition}); if (is || performance.now() > end) done(Boolean(is));"
            " else setTimeout(watch, 15); }; watch(); })"
        )
        if not self.evaluate(watch):
            raise TimeoutError(f"{condition} is not true after {seconds:g} seconds")

    def press(self, key: str, *, held: bool = False, modifiers: int = 0) -> None:
        """Press and release a key; one that is `held` comes again and again before it is released."""
        code, number = _key_code(key)
        what = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for repeated in (False, True, True) if held else (False,):
            kind = "keyDown" if text else "rawKeyDown"
            self.call(
                "Input.dispatchKeyEvent", type=kind, autoRepeat=repeated, **({"text": text} if text else {}), **what
            )
        self.call("Input.dispatchKeyEvent", type="keyUp", **what)

    def click(self, selector: str, times: int = 1) -> None:
        """Click on an element with the mouse."""
        x, y = self._middle(selector)
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)

    def point_at(self, selector: str) -> None:
        """Move the mouse over an element."""
        x, y = self._middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def tap(self, selector: str) -> None:
        """Touch an element with a finger."""
        x, y = self._middle(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def _middle(self, selector: str) -> tuple[float, float]:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{ block: 'nearest' }})")
        box = self.evaluate(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()")
        return box["left"] + box["width"] / 2, box["top"] + box["height"] / 2

    def resize(self, width: int) -> None:
        """Give the window another width."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )

    def go_offline(self, offline: bool = True) -> None:
        """Take the network away from the page, or give it back."""
        self.call(
            "Network.emulateNetworkConditions", offline=offline, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

    def reload(self) -> None:
        """Load the page again and wait for it."""
        n_loads = self._n_loads()
        self.call("Page.reload")
        self._browser.wait(lambda: self._n_loads() > n_loads)

    def _n_loads(self) -> int:
        return sum(event["method"] == "Page.loadEventFired" for event in self.events())

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

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Save a picture of the whole page, or of the window."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """The page as printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
