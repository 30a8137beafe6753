"""The page of a fleet with 3 and with 1,000 DPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from typing import cast

import pytest

from tests.browser.chromium import CONTRASTS, Tab
from tests.unit.store.test_cluster import CANDIDATE, LEADER, facts
from xenoovs.agent.control.serve import open_port
from xenoovs.fleet.commands.serve import served_beside
from xenoovs.fleet.snapshot import DpuRow, FleetSnapshot
from xenoovs.fleet.watch import FleetWatch
from xenoovs.store.view import DpuState, DpuStatus, FleetView

SHOWN = "[...document.querySelectorAll('.dpu th')].filter(name => name.offsetParent).map(name => name.innerText)"
"""The names of the DPUs that can be seen."""
NO_PORT = "port en3f0pf0sf0 is not on bridge ovsbr1"


def snapshot(dpus: int) -> FleetSnapshot:
    rows = [
        DpuRow(f"dpu{number}", DpuState.APPLIED, DpuStatus(f"dpu{number}", applied=41), 12.0) for number in range(dpus)
    ]
    rows[1] = replace(rows[1], state=DpuState.FAILED, status=replace(rows[1].status, applied=40, error=NO_PORT))
    rows[2] = replace(rows[2], state=DpuState.BEHIND, groups=frozenset({"edge", "berlin"}))
    servers = (facts(LEADER), facts(CANDIDATE, is_connected=False))
    view = FleetView("production", 1, 41, 7, 0)
    return FleetSnapshot(view, tuple(rows), servers, True, ("a problem",), 0.0, roll_out=("wave 1",))


@dataclass
class Fixed:
    """Stands for the watch of a fleet."""

    newest: FleetSnapshot

    def snapshot(self) -> FleetSnapshot:
        return self.newest


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[int, str]]:
    """Pages by their number of DPUs."""
    with ExitStack() as stack:
        found = {}
        for dpus in (3, 1000):
            opened = open_port("127.0.0.1", 0)
            stack.enter_context(served_beside(cast(FleetWatch, Fixed(snapshot(dpus))), opened))
            found[dpus] = f"{opened.url}/"
        yield found


@pytest.mark.parametrize(
    ("dpus", "width", "scheme"),
    [*product([3], [320, 800, 1280], ["light", "dark"]), (1000, 320, "light"), (1000, 1280, "dark")],
)
async def test_nothing_is_cut_off_and_all_can_be_read(
    tab: Tab, urls: dict[int, str], dpus: int, width: int, scheme: str
) -> None:
    await tab.look(width=width, scheme=scheme)
    await tab.show(urls[dpus])
    assert await tab.evaluate("document.documentElement.scrollWidth") <= width
    assert await tab.evaluate(CONTRASTS) == []
    assert await tab.evaluate("document.querySelectorAll('.dpu').length") == dpus
    assert tab.console_messages == []


async def test_trouble_comes_first_and_a_filter_outlives_a_refresh(tab: Tab, urls: dict[int, str]) -> None:
    await tab.show(urls[1000])
    assert await tab.evaluate("document.querySelector('.notice.warn').innerText") == "wave 1"
    assert (await tab.evaluate(SHOWN))[:3] == ["dpu1", "dpu2", "dpu0"]
    await tab.evaluate("document.querySelector('.choose-failed').click()")
    assert await tab.evaluate(SHOWN) == ["dpu1"]
    await tab.evaluate("document.querySelector('header').dataset.old = 'yes'")
    await tab.until("!document.querySelector('header').dataset.old")
    assert await tab.evaluate(SHOWN) == ["dpu1"]
    assert NO_PORT in await tab.evaluate("document.querySelector('.dpu.failed').innerText")


@pytest.mark.parametrize("state", DpuState)
async def test_every_state_can_be_chosen(tab: Tab, urls: dict[int, str], state: DpuState) -> None:
    await tab.show(urls[3])
    key = state.value.replace(" ", "-")
    await tab.evaluate(f"document.querySelector('.choose-{key}').click()")
    names = {DpuState.FAILED: ["dpu1"], DpuState.BEHIND: ["dpu2"], DpuState.APPLIED: ["dpu0"]}
    assert await tab.evaluate(SHOWN) == names.get(state, [])
    chosen = "[...document.querySelectorAll('.filters .chosen')].map(each => each.textContent)"
    assert await tab.evaluate(chosen) == [f"{state.value} {len(names.get(state, []))}"]
