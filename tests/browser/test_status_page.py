"""The status page in a real browser: it shows the snapshot, logs no errors, and sends no request to other hosts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from random import Random

import pytest
from aiohttp import web

from tests.browser.chromium import CONTRASTS, Tab, new_tab
from tests.snapshots import NOW_S, blocks_of, lazy_snapshot, remote, snapshot
from tests.snapshots import web as web_service
from xenoovs.agent.web.page import agent_json, mount_page
from xenoovs.display import duration, percent, quantity
from xenoovs.show.snapshot import BackendState, Event, LazySnapshot, Override

Scenario = Callable[[Tab, "Served"], Awaitable[None]]


class Served:
    """A page that is served; `shown` may be set to another snapshot while it is, and `is_broken` to give none."""

    def __init__(self) -> None:
        self.url, self.shown, self.is_broken = "", snapshot(), False

    def lazy_snapshot(self) -> LazySnapshot:
        if self.is_broken:
            raise web.HTTPServiceUnavailable
        return lazy_snapshot(self.shown)


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    app = web.Application()
    served = Served()
    mount_page("agent.js", lambda: partial(agent_json, served.lazy_snapshot()))(app)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield served
    finally:
        await runner.cleanup()


def play(browser: str, scenario: Scenario) -> None:
    async def run() -> None:
        async with serving() as served, new_tab(browser) as tab:
            await scenario(tab, served)

    asyncio.run(run())


async def texts(tab: Tab, selector: str) -> list[str]:
    found = await tab.evaluate(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent)")
    assert isinstance(found, list)
    return found


def test_it_shows_the_values_of_the_snapshot(browser: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        await tab.show(served.url)
        assert await texts(tab, ".pill") == ["a backend is down", "75% in hardware"]
        assert await texts(tab, ".facts dd:nth-of-type(1)") == ["75%", "180k", "1.44G", "2/3", "25", "4s"]
        assert await texts(tab, "section:first-of-type tbody th") == ["b0", "b1", "b2", "b3"]
        assert (await texts(tab, "td.down span")) == ["down 1m 35s"]

    play(browser, scenario)


def test_the_strip_has_the_blocks_in_their_places(browser: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        await tab.look(width=1280)
        await tab.show(served.url)
        drawn = await tab.evaluate(
            "(() => { const strip = document.querySelector('.strip'); const all = strip.getBoundingClientRect();"
            " return [...strip.querySelectorAll('rect')].map(r => { const b = r.getBoundingClientRect();"
            " return [(b.x - all.x) / all.width, b.width / all.width, r.getAttribute('class')]; }); })()"
        )
        wanted = [[block.start, block.size, f"c{block.backend[1:]}"] for block in blocks_of("web")]
        assert [row[2] for row in drawn] == [row[2] for row in wanted]
        for (x, width, _), (start, size, _) in zip(drawn, wanted, strict=True):
            assert abs(x - start) < 0.002
            assert abs(width - size) < 0.002

    play(browser, scenario)


def test_it_refreshes_itself_and_requests_only_from_the_agent(browser: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        await tab.show(served.url)
        served.shown = replace(snapshot(), is_paused=True)
        await tab.until("document.querySelector('.pill').textContent === 'paused'")
        assert tab.console_messages == []
        assert {url for url in tab.requests if not url.startswith("data:")} == {served.url, f"{served.url}now"}

    play(browser, scenario)


def test_it_reports_that_the_agent_does_not_answer(browser: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        await tab.show(served.url)
        served.is_broken = True
        await tab.until("!document.getElementById('silent').hidden")
        assert await texts(tab, ".pill") == ["a backend is down", "75% in hardware"]
        served.is_broken = False
        await tab.until("document.getElementById('silent').hidden")

    play(browser, scenario)


def test_names_of_users_are_text(browser: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        await tab.show(served.url)
        names = await texts(tab, "h2")
        assert any("<script>alert(1)</script>" in name for name in names)
        assert await tab.evaluate("document.scripts.length") == 1

    play(browser, scenario)


def test_the_policy_stops_a_foreign_script(browser: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        await tab.show(served.url)
        await tab.evaluate(
            "(() => { const s = document.createElement('script'); s.textContent = 'window.was = 1';"
            " document.body.append(s); })()"
        )
        assert await tab.evaluate("typeof window.was") == "undefined"
        await tab.until("true")
        assert any("Content Security Policy" in message for message in tab.console_messages)

    play(browser, scenario)


def test_without_javascript_it_names_a_command(browser: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        await tab.ask("Emulation.setScriptExecutionDisabled", value=True)
        await tab.open(served.url)
        assert await texts(tab, "#now code") == ["xenoovs status"]

    play(browser, scenario)


@pytest.mark.parametrize("hostile", ['<img src=x onerror="alert(1)">', "'\"><script>1</script>", "</style>", "{{7*7}}"])
def test_text_from_any_source_stays_text(browser: str, hostile: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        service = snapshot().services[0]
        backend = replace(service.backends[0], name=hostile, reason=hostile, mac=hostile)
        rude = replace(service, name=hostile, vips=(hostile,), backends=(backend, *service.backends[1:]))
        served.shown = replace(
            snapshot(),
            services=(rude,),
            bridge=hostile,
            last_error=hostile,
            config_problem=hostile,
            events=(Event(NOW_S, hostile, hostile, {hostile: hostile}, 1),),
            overrides=(Override(hostile, hostile, Fraction(1), NOW_S),),
        )
        await tab.show(served.url)
        assert await tab.evaluate("[document.scripts.length, document.images.length]") == [1, 0]
        names = "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes]).map(a => a.name)"
        assert not any(name == "style" or name.startswith("on") for name in await tab.evaluate(names))
        assert str(await tab.evaluate("document.body.textContent")).count(hostile) >= 8

    play(browser, scenario)


def test_numbers_are_written_as_commands_write_them(browser: str) -> None:
    random = Random(7)
    shares = [0.0, 1.0, 1e-13, 1e-5, 0.5, 0.33333, 0.99999, 1 - 1e-13, *(random.random() for _ in range(200))]
    numbers = [
        0.0,
        0.05,
        0.1,
        0.094,
        0.188,
        1.5,
        999.4,
        999.5,
        1e3,
        1234567.0,
        *(10 ** random.uniform(-3, 14) for _ in range(200)),
    ]
    times = [0.0, 0.4, 59.0, 61.0, 3599.0, 3600.0, 86400.0, 90061.0, *(random.uniform(0, 1e6) for _ in range(200))]

    async def scenario(tab: Tab, served: Served) -> None:
        await tab.show(served.url)
        for name, values, write in (
            ("percent", shares, percent),
            ("quantity", numbers, quantity),
            ("duration", times, duration),
        ):
            assert await tab.evaluate(f"{json.dumps(values)}.map({name})") == list(map(write, values))

    play(browser, scenario)


def test_blocks_of_a_backend_that_the_config_no_longer_has_are_drawn(browser: str) -> None:
    """As while a pause keeps the bridge as it was."""

    async def scenario(tab: Tab, served: Served) -> None:
        service = snapshot().services[0]
        served.shown = replace(snapshot(), services=(replace(service, backends=service.backends[1:]),))
        await tab.show(served.url)
        classes = await tab.evaluate("[...document.querySelectorAll('.strip rect')].map(r => r.getAttribute('class'))")
        assert classes[:8] == ["gone"] * 8

    play(browser, scenario)


def test_a_block_shows_mask_backend_and_verdict_under_the_pointer(browser: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        await tab.look(width=1280)
        await tab.show(served.url)
        x, y = await tab.evaluate(
            "(() => { const b = document.querySelector('.strip rect:nth-child(10)').getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        await tab.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        await tab.until("!document.getElementById('tip').hidden")
        assert await texts(tab, "#tip") == ["b1 · TC_SW · nw_src=0.0.0.9/0.0.0.15"]

    play(browser, scenario)


def test_remotes_have_the_columns_of_status(browser: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        served.shown = replace(snapshot(), remotes=(remote(),))
        await tab.show(served.url)
        headers = await texts(tab, ".remotes th")
        cells = await texts(tab, ".remotes tbody tr > *")
        assert headers[:2] == ["remote", "state"]
        assert len(cells) == len(await texts(tab, ".remotes thead th"))
        assert cells[:2] == ["rack7/b", await tab.evaluate("document.querySelector('.remotes .pill').innerText")]

    play(browser, scenario)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 700, 1280])
def test_it_fits_the_window_and_can_be_read_in_both_schemes(browser: str, width: int, scheme: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        await tab.look(width=width, scheme=scheme)
        await tab.show(served.url)
        assert await tab.evaluate("document.documentElement.scrollWidth") == width
        ground = _luminance(await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        ink = _luminance(await tab.evaluate("getComputedStyle(document.body).color"))
        assert (ground > ink) == (scheme == "light")
        # WCAG 2.2, 1.4.6: contrast of 7:1.
        assert (max(ground, ink) + 0.05) / (min(ground, ink) + 0.05) >= 7
        assert (await tab.screenshot()).startswith(b"\x89PNG")

    play(browser, scenario)


@pytest.mark.parametrize("width", [360, 1280])
def test_many_dead_services_are_one_banner(browser: str, width: int) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        backends = tuple(replace(backend, state=BackendState.DOWN) for backend in web_service().backends)
        dead = replace(web_service(), backends=backends, draining=0)
        services = tuple(replace(dead, name=f"a-service-with-a-long-name-{number}") for number in range(40))
        served.shown = replace(snapshot(), services=services, overrides=())
        await tab.look(width=width)
        await tab.show(served.url)
        (banner,) = await texts(tab, ".notice.bad")
        assert banner.startswith("40 services have clients without a working backend: a-service")
        assert banner.endswith(" and 35 more")
        assert await tab.evaluate("document.documentElement.scrollWidth") == width

    play(browser, scenario)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_notices_can_be_read(browser: str, scheme: str) -> None:
    async def scenario(tab: Tab, served: Served) -> None:
        served.shown = replace(snapshot(), last_error="away", config_problem="bad", is_paused=True, confirm_by_s=NOW_S)
        await tab.look(width=800, scheme=scheme)
        await tab.show(served.url)
        assert len(await texts(tab, ".notice")) == 8
        assert await tab.evaluate(CONTRASTS) == []

    play(browser, scenario)


def _luminance(text: str) -> float:
    """Relative luminance of `rgb(r, g, b)` (WCAG 2.2)."""
    parts = [int(part) / 255 for part in text.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
