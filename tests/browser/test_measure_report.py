"""A report of `measure` in a real browser: nothing is fetched, all can be read in both schemes, and it prints."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.browser.chromium import CONTRASTS, Tab
from tests.unit.measure.made import designs_run, latency_run, loss_run, rate_run, suspecting, write
from xenoovs.measure.report import make_report, read_sources, write_report


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("results")
    before = write(directory / "before", suspecting(rate_run(), 1), latency_run(), loss_run(), designs_run())
    after = write(directory / "after", rate_run(factor=1.5), latency_run())
    return write_report(make_report(read_sources([before, after])), Path(directory)).as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 700, 1280])
async def test_it_fits_the_window_and_can_be_read_in_both_schemes(tab: Tab, url: str, width: int, scheme: str) -> None:
    await tab.look(width=width, scheme=scheme)
    await tab.open(url)
    assert await tab.evaluate("document.documentElement.scrollWidth") == width
    assert await tab.evaluate(CONTRASTS.replace("#now *", "body *")) == []
    # Each picture has at least the width of its card, and the ground of the scheme.
    assert (
        await tab.evaluate(
            "[...document.querySelectorAll('figure svg')].map(e => e.getBoundingClientRect().width > 0.8 * "
            "e.parentElement.getBoundingClientRect().width && e.getBoundingClientRect().height > 150)"
        )
        == [True] * 4
    )
    fill = await tab.evaluate("getComputedStyle(document.querySelector('figure svg path')).fill")
    assert fill == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 23, 29)")
    assert tab.console_messages == []
    assert tab.requests == [url]


async def test_it_prints_in_light_colours_whatever_the_screen_has(tab: Tab, url: str) -> None:
    await tab.ask(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    await tab.open(url)
    fill = await tab.evaluate("getComputedStyle(document.querySelector('figure svg path')).fill")
    assert fill == "rgb(255, 255, 255)"
    printed = base64.b64decode((await tab.ask("Page.printToPDF", printBackground=False))["data"])
    assert printed.startswith(b"%PDF")
