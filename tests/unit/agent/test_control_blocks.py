"""Status without blocks, and blocks by service and page; neither is built in the event loop of the probes."""

from __future__ import annotations

import threading

import pytest

from tests.agent_support import Scene
from xenoovs.agent.control import handlers
from xenoovs.agent.snapshot_builder import Moment, service_views
from xenoovs.show.snapshot import LazySnapshot, ServiceView


def test_the_blocks_of_a_service_fill_the_address_space(scene: Scene) -> None:
    with scene.agent() as (agent, client):
        found = client.ask("blocks", query={"service": "dns"})
        assert (found["service"], found["total"], found["next"]) == ("dns", len(found["blocks"]), None)
        assert sum(block["size"] for block in found["blocks"]) == 1
        counted = {one.name: one.flows for one in agent.snapshot().services[0].backends}
        assert {name: sum(b["backend"] == name for b in found["blocks"]) for name in counted} == counted


def test_blocks_come_by_pages(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MAX_BLOCKS", 2)
    with scene.agent() as (_, client):
        page = client.ask("blocks", query={"service": "dns"})
        pages = [page]
        while (page := client.ask("blocks", query={"service": "dns", "after": page["next"]}))["next"] is not None:
            pages.append(page)
        pages.append(page)
        starts = [block["start"] for page in pages for block in page["blocks"]]
        assert [len(page["blocks"]) for page in pages[:-1]] == [2] * (len(pages) - 1)
        assert (len(starts), starts) == (page["total"], sorted(set(starts)))
        assert client.ask("blocks", query={"service": "dns", "after": 10**9})["blocks"] == []


def test_the_event_loop_of_the_probes_builds_no_status(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 16,000 backends that takes a quarter of a second, in which probes would be late."""
    makers: list[int] = []
    loops: list[int] = []

    def made(seen: Moment) -> tuple[ServiceView, ...]:
        makers.append(threading.get_ident())
        return service_views(seen)

    monkeypatch.setattr("xenoovs.agent.snapshot_builder.service_views", made)
    with scene.agent() as (agent, client):
        lazy_snapshot = agent.lazy_snapshot

        def counted_snapshot() -> LazySnapshot:
            loops.append(threading.get_ident())
            return lazy_snapshot()

        agent.lazy_snapshot = counted_snapshot  # type: ignore[method-assign]
        client.ask("status")
    assert (len(makers), len(loops)) == (1, 1)
    assert makers != loops
