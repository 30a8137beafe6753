"""The status page in a real browser: it shows the snapshot, logs no errors, and sends no request to other hosts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from random import Random

import pytest
from aiohttp import web

from tests.browser.chromium import CONTRASTS, Tab
from tests.snapshots import NOW_S, blocks, remote, snapshot
from tests.snapshots import web as web_service
from xenoovs.agent.web.page import agent_json, page_routes
from xenoovs.datapath.megaflow import Verdict
from xenoovs.display import duration, percent, quantity
from xenoovs.show.snapshot import BackendState, Event, LazySnapshot, Override

BLOCKS = blocks("0000000011110033", "hhhhhhhhhtttp-sa")
"""Of the service web, with each verdict."""


class Served:
    """A page that is served; `shown` may be set to another snapshot while it is, and `is_broken` to give none."""

    def __init__(self) -> None:
        self.url, self.shown, self.is_broken = "", snapshot(), False

    def lazy_snapshot(self) -> LazySnapshot:
        if self.is_broken:
            raise web.HTTPServiceUnavailable
        return LazySnapshot(lambda: self.shown, lambda service: BLOCKS if service == "web" else blocks("01", "--"))


@pytest.fixture
def served(loop: asyncio.AbstractEventLoop) -> Iterator[Served]:
    app, made = web.Application(), Served()
    app.add_routes(page_routes("agent.js", lambda: partial(agent_json, made.lazy_snapshot())))
    runner = web.AppRunner(app)
    loop.run_until_complete(runner.setup())
    loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    yield made
    loop.run_until_complete(runner.cleanup())


async def test_it_shows_the_values_of_the_snapshot(tab: Tab, served: Served) -> None:
    await tab.show(served.url)
    assert await tab.texts(".pill") == ["a backend is down", "75% in hardware"]
    assert await tab.texts(".facts dd:nth-of-type(1)") == ["75%", "180k", "1.44G", "2/3", "25", "4s"]
    assert await tab.texts("section:first-of-type tbody th") == ["b0", "b1", "b2", "b3"]
    assert (await tab.texts("td.down span")) == ["down 1m 35s"]
    holds = await tab.texts("section:first-of-type .holds")
    assert holds == [f"has {percent(backend.share)} of the clients" for backend in web_service().backends]
    assert await tab.texts("td.down small") == ["connection refused, 500us"]
    verdicts = [verdict.value for verdict in (Verdict.HW, Verdict.PARTIAL, Verdict.TC_SW, Verdict.SW, Verdict.ABSENT)]
    legend = await tab.texts("section:first-of-type figcaption li")
    assert [text.split()[0] for text in legend] == [*verdicts, "not"]
    classes = await tab.evaluate(
        "[...document.querySelectorAll('.strip')[1].querySelectorAll('rect')].map(r => r.getAttribute('class'))"
    )
    assert classes == [f"v-{block.verdict.value.lower()}" if block.verdict else "v-none" for block in BLOCKS]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 800, 1280])
async def test_nothing_is_cut_off_and_all_can_be_read(tab: Tab, served: Served, width: int, scheme: str) -> None:
    await tab.look(width=width, scheme=scheme)
    await tab.show(served.url)
    assert await tab.evaluate("document.documentElement.scrollWidth") <= width
    assert await tab.evaluate(CONTRASTS) == []
    ground = re.findall(r"\d+", await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (sum(map(int, ground)) > 3 * 128) == (scheme == "light")
    bars = "[...document.querySelectorAll('section:first-of-type .bar')]"
    lengths = await tab.evaluate(f"{bars}.map(b => Math.round(b.getBoundingClientRect().width))")
    assert len(lengths) == 4
    assert len({*lengths}) == 1


async def test_keys_move_through_blocks_while_the_page_refreshes(tab: Tab, served: Served) -> None:
    await tab.show(served.url)
    for key in ("Tab", "ArrowRight", "ArrowRight"):
        await tab.ask("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
    (tip,) = await tab.texts("#tip")
    assert "nw_src=" in tip
    assert tip == await tab.evaluate("document.querySelectorAll('.strip rect')[1].dataset.tip")
    await tab.evaluate("document.querySelector('header').dataset.old = 'yes'")
    await tab.until("!document.querySelector('header').dataset.old")
    assert await tab.texts("#tip") == [tip]
    assert await tab.evaluate("document.activeElement.classList.contains('strip')")
    assert await tab.evaluate("!document.getElementById('tip').hidden")


async def test_the_strip_has_the_blocks_in_their_places(tab: Tab, served: Served) -> None:
    await tab.look(width=1280)
    await tab.show(served.url)
    drawn = await tab.evaluate(
        "(() => { const strip = document.querySelector('.strip'); const all = strip.getBoundingClientRect();"
        " return [...strip.querySelectorAll('rect')].map(r => { const b = r.getBoundingClientRect();"
        " return [(b.x - all.x) / all.width, b.width / all.width, r.getAttribute('class')]; }); })()"
    )
    wanted = [[block.start, block.size, f"c{block.backend[1:]}"] for block in BLOCKS]
    assert [row[2] for row in drawn] == [row[2] for row in wanted]
    for (x, width, _), (start, size, _) in zip(drawn, wanted, strict=True):
        assert abs(x - start) < 0.002
        assert abs(width - size) < 0.002


async def test_it_refreshes_itself_and_requests_only_from_the_agent(tab: Tab, served: Served) -> None:
    await tab.show(served.url)
    served.shown = replace(snapshot(), is_paused=True)
    await tab.until("document.querySelector('.pill').textContent === 'paused'")
    assert tab.console_messages == []
    assert {url for url in tab.requests if not url.startswith("data:")} == {served.url, f"{served.url}now"}


async def test_it_reports_that_the_agent_does_not_answer(tab: Tab, served: Served) -> None:
    await tab.show(served.url)
    served.is_broken = True
    await tab.until("!document.getElementById('silent').hidden")
    assert await tab.texts(".pill") == ["a backend is down", "75% in hardware"]
    served.is_broken = False
    await tab.until("document.getElementById('silent').hidden")


async def test_the_policy_stops_a_foreign_script(tab: Tab, served: Served) -> None:
    await tab.show(served.url)
    await tab.evaluate(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.was = 1';"
        " document.body.append(s); })()"
    )
    assert await tab.evaluate("typeof window.was") == "undefined"
    await tab.until("true")
    assert any("Content Security Policy" in message for message in tab.console_messages)


async def test_without_javascript_it_names_a_command(tab: Tab, served: Served) -> None:
    await tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    await tab.open(served.url)
    assert await tab.texts("#now code") == ["xenoovs status"]


@pytest.mark.parametrize("hostile", ['<img src=x onerror="alert(1)">', "'\"><script>1</script>", "</style>", "{{7*7}}"])
async def test_text_from_any_source_stays_text(tab: Tab, served: Served, hostile: str) -> None:
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


async def test_numbers_are_written_as_commands_write_them(tab: Tab, served: Served) -> None:
    random = Random(7)
    shares = [0.0, 1.0, 1e-13, 1e-5, 0.5, 0.33333, 0.99999, 1 - 1e-13, *(random.random() for _ in range(200))]
    numbers = [0.0, 0.05, 0.1, 0.094, 0.188, 1.5, 999.4, 999.5, 1e3, 1234567.0]
    numbers += [10 ** random.uniform(-3, 14) for _ in range(200)]
    times = [0.0, 0.4, 59.0, 61.0, 3599.0, 3600.0, 86400.0, 90061.0, *(random.uniform(0, 1e6) for _ in range(200))]
    await tab.show(served.url)
    for write, values in ((percent, shares), (quantity, numbers), (duration, times)):
        assert await tab.evaluate(f"{json.dumps(values)}.map({write.__name__})") == list(map(write, values))


async def test_blocks_of_a_backend_that_the_config_no_longer_has_are_drawn(tab: Tab, served: Served) -> None:
    """As while a pause keeps the bridge as it was."""
    service = snapshot().services[0]
    served.shown = replace(snapshot(), services=(replace(service, backends=service.backends[1:]),))
    await tab.show(served.url)
    classes = await tab.evaluate("[...document.querySelectorAll('.strip rect')].map(r => r.getAttribute('class'))")
    assert classes[:8] == ["gone"] * 8


async def test_a_block_shows_mask_backend_and_verdict_under_the_pointer(tab: Tab, served: Served) -> None:
    await tab.look(width=1280)
    await tab.show(served.url)
    x, y = await tab.evaluate(
        "(() => { const b = document.querySelector('.strip rect:nth-child(10)').getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    await tab.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    await tab.until("!document.getElementById('tip').hidden")
    assert await tab.texts("#tip") == ["b1 · TC_SW · nw_src=0.0.0.9/0.0.0.15"]


async def test_remotes_have_the_columns_of_status(tab: Tab, served: Served) -> None:
    served.shown = replace(snapshot(), remotes=(remote(),))
    await tab.show(served.url)
    headers = await tab.texts(".remotes th")
    cells = await tab.texts(".remotes tbody tr > *")
    assert headers[:2] == ["remote", "state"]
    assert len(cells) == len(await tab.texts(".remotes thead th"))
    assert cells[:2] == ["rack7/b", await tab.evaluate("document.querySelector('.remotes .pill').innerText")]


async def test_many_dead_services_are_one_banner_that_fits(tab: Tab, served: Served) -> None:
    backends = tuple(replace(backend, state=BackendState.DOWN) for backend in web_service().backends)
    dead = replace(web_service(), backends=backends, draining=0)
    services = tuple(replace(dead, name=f"a-service-with-a-long-name-{number}") for number in range(40))
    served.shown = replace(snapshot(), services=services, overrides=())
    await tab.look(width=360)
    await tab.show(served.url)
    (banner,) = await tab.texts(".notice.bad")
    assert banner.startswith("40 services have clients without a working backend: a-service")
    assert banner.endswith(" and 35 more")
    assert await tab.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_notices_can_be_read(tab: Tab, served: Served, scheme: str) -> None:
    served.shown = replace(snapshot(), last_error="away", config_problem="bad", is_paused=True, confirm_by_s=NOW_S)
    await tab.look(width=800, scheme=scheme)
    await tab.show(served.url)
    assert len(await tab.texts(".notice")) == 8
    assert await tab.evaluate(CONTRASTS) == []
