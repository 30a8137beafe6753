"""The page of a real agent whose datapath has megaflows in the NIC and beside it, with a backend that is down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent_support import Scene
from tests.browser.chromium import CONTRASTS, Tab
from tests.fake_switch import fake_bridge
from tests.faked_datapath import FakedDatapath
from tests.patience import eventually
from xenoovs.agent.control.app import Mount
from xenoovs.agent.control.serve import Listen, open_port
from xenoovs.agent.daemon import Agent
from xenoovs.agent.offload import SamplePace
from xenoovs.agent.probe.target import ProbeResult, Target, TcpTarget
from xenoovs.agent.telemetry import telemetry
from xenoovs.datapath.megaflow import Verdict

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
health: {probe: tcp, interval: 200ms, timeout: 100ms, fall: 1, rise: 1}
services:
  - name: web
    vip: 192.0.2.80
    protocol: tcp
    ports: [443]
    backends:
      - {name: web1, mac: 02:00:5e:10:00:02, address: 198.51.100.2, weight: 4}
      - {name: web2, mac: 02:00:5e:10:00:03, address: 198.51.100.3, weight: 3}
      - {name: web3, mac: 02:00:5e:10:00:04, address: 198.51.100.4, weight: 1}
"""
DEAD = "198.51.100.3"
_OFTEN = SamplePace(interval_s=0.2, watched_interval_s=0.2, share=1, watched_share=1)
"""A sample may take this long on a busy machine."""
VERDICTS = (Verdict.HW, Verdict.PARTIAL, Verdict.TC_SW, Verdict.SW, Verdict.ABSENT)


async def all_but_one(target: Target, *, timeout_s: float) -> ProbeResult:
    assert isinstance(target, TcpTarget)
    is_well = str(target.address) != DEAD
    return ProbeResult(ok=is_well, latency_s=0.001, reason="answered" if is_well else "connection refused")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the page of an agent with two samples, so that there are rates."""
    directory: Path = tmp_path_factory.mktemp("agent")
    switch = FakedDatapath(fake_bridge("ovsbr1", ["p0", "p1"]))
    switch.verdict = lambda service, backend, number: VERDICTS[number % len(VERDICTS)]
    scene = Scene(directory, switch)
    scene.config.write_text(CONFIG)

    def mounts(agent: Agent) -> tuple[Mount, ...]:
        switch.program = lambda: agent.engine.program
        return telemetry(agent, pace=_OFTEN, is_always=True)

    opened = open_port(Listen("127.0.0.1", 0))
    with scene.agent(also=(opened,), probe=all_but_one, mounts=mounts) as (agent, _):
        eventually(lambda: bool(agent.state.offload.rates), "two samples")
        yield f"{opened.url}/"


async def test_verdicts_and_a_backend_that_is_down_are_shown(tab: Tab, url: str) -> None:
    await tab.show(url)
    assert (await tab.texts(".pill"))[0] == "a backend is down"
    assert await tab.texts("td.down small") == ["connection refused, 1ms"]
    assert [text.split()[0] for text in await tab.texts("figcaption li")] == [v.value for v in VERDICTS]
    classes = await tab.evaluate(
        "[...document.querySelectorAll('.strip')[1].querySelectorAll('rect')].map(r => r.getAttribute('class'))"
    )
    assert set(classes) == {"v-hw", "v-tc_sw", "v-sw", "v-partial", "v-absent"}
    # web2 is down: nothing leads there, and its part is lent to the others.
    holds = await tab.texts(".holds")
    assert holds[1] == "has 0% of the clients"
    assert sum(float(text.split()[1].rstrip("%")) for text in holds) == pytest.approx(100, abs=0.1)
    assert tab.console_messages == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 800, 1280])
async def test_nothing_is_cut_off_and_all_can_be_read(tab: Tab, url: str, width: int, scheme: str) -> None:
    await tab.look(width=width, scheme=scheme)
    await tab.show(url)
    assert await tab.evaluate("document.documentElement.scrollWidth") <= width
    assert await tab.evaluate(CONTRASTS) == []
    ground = re.findall(r"\d+", await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (sum(map(int, ground)) > 3 * 128) == (scheme == "light")


@pytest.mark.parametrize("width", [320, 800, 1280])
async def test_bars_of_a_service_have_one_length(tab: Tab, url: str, width: int) -> None:
    await tab.look(width=width)
    await tab.show(url)
    lengths = await tab.evaluate(
        "[...document.querySelectorAll('.bar')].map(b => Math.round(b.getBoundingClientRect().width))"
    )
    assert len(lengths) == 3
    assert len({*lengths}) == 1


async def test_keys_move_through_blocks_while_the_page_refreshes(tab: Tab, url: str) -> None:
    await tab.show(url)
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
