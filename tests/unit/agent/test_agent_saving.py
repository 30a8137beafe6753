"""Overrides are durable before the reply is sent; writing them delays neither probes nor rounds."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.agent_support import Scene, make_scene
from tests.patience import PATIENCE_S, eventually
from xenoovs.errors import AgentRefused
from xenoovs.show.agent import Snapshot, parse_snapshot
from xenoovs.switch.process import run

FIPS2 = {"service": "dns", "backend": "fips2"}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return make_scene(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two pages, on which a full page is left besides directories."""
    path = tmp_path / "disk"
    path.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=8k", "small", str(path)])
    try:
        yield path
    finally:
        run(["umount", str(path)])


def seen(client: Any) -> Snapshot:
    return parse_snapshot(client.ask("status")["snapshot"])


def test_a_request_that_cannot_be_saved_is_refused_and_changes_nothing(scene: Scene, small_disk: Path) -> None:
    """The request was answered as done, but after a restart the old drain was in effect again."""
    on_disk = Scene(scene.directory, scene.switch, small_disk)
    with on_disk.agent() as (_, client):
        client.ask("drain", FIPS2)
        (small_disk / "rest").write_bytes(bytes(4096))
        before, flows = seen(client), scene.flows
        for route, request in (("pause", {}), ("weight", {**FIPS2, "weight": 50})):
            with pytest.raises(AgentRefused, match="No space left on device; nothing was changed") as refused:
                client.ask(route, request)
            assert refused.value.status == 507
        assert (seen(client).overrides, seen(client).is_paused, scene.flows) == (before.overrides, False, flows)
        # Without any override there is no file, so this needs no space.
        client.ask("undrain", FIPS2)
    with on_disk.agent() as (_, client):
        assert seen(client).overrides == ()


def test_a_slow_disk_delays_the_answer_alone(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    written, threads, fsync = Event(), list[threading.Thread](), os.fsync

    def slow(descriptor: int) -> None:
        threads.append(threading.current_thread())
        assert written.wait(PATIENCE_S)
        fsync(descriptor)

    answers = list[Any]()
    with scene.agent() as (agent, client):
        monkeypatch.setattr(os, "fsync", slow)
        request = Thread(target=lambda: answers.append(client.ask("drain", FIPS2)))
        request.start()
        eventually(lambda: bool(threads), "the write has begun")
        assert seen(client).overrides == ()
        victim = next(iter(scene.flows))
        scene.switch.remove_flow("ovsbr1", victim.key)
        eventually(lambda: victim in scene.flows, "a round restores the flow")
        assert answers == []
        written.set()
        request.join(PATIENCE_S)
        assert answers[0]["is_applied"]
        assert agent.state.runtime.overrides != ()
    assert scene.state.exists()


def test_an_override_that_a_config_has_ended_is_removed_from_the_file(scene: Scene) -> None:
    with scene.agent() as (_, client):
        client.ask("drain", FIPS2)
        scene.edit("weight: 70", "weight: 60")
        eventually(lambda: not scene.state.exists(), "the file is removed")
