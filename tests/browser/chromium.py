"""A headless Chromium for tests, driven by its DevTools protocol (https://chromedevtools.github.io/devtools-protocol/)."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.patience import PATIENCE_S

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # Chromium does not run as root with a sandbox; it opens only our pages
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


CONTRASTS = """(() => {
  const rgb = (text) => text.match(/[0-9.]+/g).map(Number);
  const lit = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * lit(r) + 0.7152 * lit(g) + 0.0722 * lit(b);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const found = rgb(getComputedStyle(e).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
  };
  const own = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  return [...document.querySelectorAll("#now *")].filter((e) => own(e) && !e.closest("svg") && e.offsetParent)
    .map((e) => {
      const pair = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((a, b) => b - a);
      return [(pair[0] + 0.05) / (pair[1] + 0.05), e.textContent];
    }).filter(([ratio]) => ratio < 4.5);
})()"""
"""Texts with less contrast than 4.5 to 1 (WCAG 2.2, 1.4.3)."""


@contextmanager
def running_chromium(profile: Path) -> Iterator[str]:
    """A browser for the time of a `with`; where its DevTools listen. Fails the test where Chromium is missing."""
    if shutil.which("chromium") is None:
        pytest.fail("this test needs Chromium: scripts/setup-browser installs it")
    argv = ["chromium", *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield _address(process, profile)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()


class Tab:
    """One page. `console_messages`: also exceptions and what the browser refused; `requests`: their URLs."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self.console_messages: list[str] = []
        self.requests: list[str] = []
        self._socket, self._numbers = socket, itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await asyncio.wait_for(self._answers[number], PATIENCE_S)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, from outside of what the page's policy allows."""
        answer = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def texts(self, selector: str) -> list[str]:
        """The texts of the elements that a selector finds."""
        found = await self.evaluate(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent)")
        assert isinstance(found, list)
        return found

    async def open(self, url: str) -> None:
        await self.ask("Page.navigate", url=url)
        # The page of before is complete, too.
        await self.until("document.readyState === 'complete' && document.URL !== 'about:blank'")

    async def show(self, url: str) -> None:
        """Open one of our pages, until it has drawn what it shows."""
        await self.open(url)
        await self.until("!!document.querySelector('#now header')")

    async def until(self, condition: str) -> None:
        """Wait until a JavaScript expression holds."""
        for _ in range(int(PATIENCE_S * 10)):
            if await self.evaluate(condition):
                return
            await asyncio.sleep(0.1)
        pytest.fail(f"this never came about: {condition}")

    async def look(self, *, width: int, scheme: str = "light") -> None:
        """As in a window of that width, with that colour scheme."""
        await self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.ask("Emulation.setEmulatedMedia", features=[feature])

    async def listen(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                self._answers.pop(event["id"]).set_result(event)
            elif event["method"] == "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
            elif event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.console_messages.append(json.dumps(event["params"]))


@asynccontextmanager
async def new_tab(address: str) -> AsyncIterator[Tab]:
    """A page of its own in a running browser."""
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://{address}/json/new?about:blank") as answer:
            target = await answer.json()
        async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            tab = Tab(socket)
            listening = asyncio.create_task(tab.listen())
            for domain in ("Page", "Runtime", "Log", "Network"):
                await tab.ask(f"{domain}.enable")
            try:
                yield tab
            finally:
                listening.cancel()
        async with session.get(f"http://{address}/json/close/{target['id']}"):
            pass


def _address(process: subprocess.Popen[bytes], profile: Path) -> str:
    port_file = profile / "DevToolsActivePort"
    deadline_s = time.monotonic() + PATIENCE_S
    while not port_file.exists() or not (lines := port_file.read_text().splitlines()):
        assert process.poll() is None, "Chromium has ended"
        assert time.monotonic() < deadline_s, "Chromium does not listen"
        time.sleep(0.05)
    return f"127.0.0.1:{lines[0]}"
