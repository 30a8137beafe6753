"""Files of an agent: a config is accepted once it is on the bridge; overrides are durable before a reply."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest

from tests.agent_support import Scene, Servers
from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, given, overridden, settled
from tests.patience import PATIENCE_S, eventually
from tests.unit import balancer as small
from xenoovs.agent import health, runtime_file
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.control.files import AgentPaths, BridgeLocks
from xenoovs.agent.daemon import Outcome
from xenoovs.agent.fleet_config import FleetConfig
from xenoovs.agent.health import HealthTracker
from xenoovs.agent.overrides import require_possible
from xenoovs.agent.runtime_file import RuntimeFile, parse_runtime, render_runtime
from xenoovs.agent.state import RoundFacts, Runtime
from xenoovs.decision.decision import with_weights
from xenoovs.engine.engine import Engine
from xenoovs.errors import (
    AgentRefused,
    CompileError,
    ConfigError,
    ConfigUnreadable,
    ListenError,
    MacUnknown,
    StateUnusable,
)
from xenoovs.model.balancer import Balancer
from xenoovs.show.conditions import notices
from xenoovs.show.snapshot import Override, Snapshot, parse_snapshot
from xenoovs.store.view import FleetView
from xenoovs.switch.process import run


@pytest.fixture
def path(scene: Scene) -> Path:
    return scene.config


def replaced_by(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def replace_it(path: Path) -> None:
        path.unlink()
        make(path)

    return replace_it


SPOILED: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"\x00\xff{["),
    "empty": lambda path: path.write_text(""),
    "another mistake": lambda path: path.write_text(SMALL_CONFIG.replace("weight: 70", "weight: -1")),
    "gone": Path.unlink,
    "a directory": replaced_by(Path.mkdir),
    "a pipe without a writer": replaced_by(os.mkfifo),
    "a device without end": replaced_by(lambda path: path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_the_last_good_one_stays_and_a_valid_one_replaces_it(spoil: Callable[[Path], object], path: Path) -> None:
    config = ConfigFile(path)
    good, digest = config.balancer, config.digest
    spoil(path)
    assert config.poll()
    assert isinstance(config.problem, ConfigError | ConfigUnreadable)
    assert (config.balancer, config.digest) == (good, digest)
    assert not config.poll()
    with pytest.raises((ConfigError, ConfigUnreadable)):
        ConfigFile(path)
    if path.is_dir():
        path.rmdir()
        assert config.poll()
        assert "No such file" in str(config.problem)
    path.unlink(missing_ok=True)
    path.write_text(SMALL_CONFIG.replace("70", "60"))
    assert config.poll()
    assert not config.problem
    assert config.balancer == good
    config.accept()
    assert config.balancer != good
    assert config.candidate is None
    path.write_text(path.read_text())
    assert not config.poll(always=True)


INCLUDING = SMALL_CONFIG.replace("services:", "include: conf.d\nservices:")
MAIL = """services:
  - name: mail
    vip: 10.3.10.46
    protocol: tcp
    ports: [25]
    backends:
      - {name: fips2, mac: 02:00:5e:10:00:02, weight: 1}
"""


def test_files_that_are_included_are_watched_too(path: Path, tmp_path: Path) -> None:
    mail = tmp_path / "conf.d" / "mail.yaml"
    mail.parent.mkdir()
    path.write_text(INCLUDING)
    config = ConfigFile(path)
    assert not config.is_touched
    digests = [config.digest]
    for change in (lambda: mail.write_text(MAIL), lambda: mail.write_text(MAIL.replace("[25]", "[587]")), mail.unlink):
        change()
        assert config.poll()
        config.accept()
        digests.append(config.digest)
        assert [each.name for each in config.balancer.services][1:] == ["mail"] * mail.exists()
        if mail.exists():
            mail.write_text("services: [")
            assert config.poll()
            assert "mail.yaml:2:1: not valid YAML" in str(config.problem)
            assert not config.poll(always=False)
    assert digests[0] == digests[-1], "without mail the text is that of the beginning"
    assert len({*digests}) == 3
    mail.parent.rmdir()
    assert config.poll()
    assert config.newer != config.digest
    mail.parent.write_text(MAIL)
    assert config.poll()
    assert config.problem is None


def test_a_link_that_leads_to_another_file_is_noticed(path: Path, tmp_path: Path) -> None:
    """A ConfigMap of Kubernetes exchanges a directory behind a link."""
    for name, ports in (("one", "[25]"), ("two", "[587]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mail.yaml").write_text(MAIL.replace("[25]", ports))
    (tmp_path / "conf.d").symlink_to("one")
    path.write_text(INCLUDING)
    config = ConfigFile(path)
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").replace(tmp_path / "conf.d")
    assert config.poll()
    assert str(config.balancers[-1].services[1].claim.ports[0]) == "587"


SAVED = Runtime((Override("dns", "fips2", Fraction(1, 2), 1.5, Fraction(70)),), is_paused=True)


def test_what_is_saved_is_loaded_and_nothing_set_is_no_file(tmp_path: Path) -> None:
    file = RuntimeFile(tmp_path / "state" / "br.json")
    assert file.load() == Runtime()
    thirds = (Override("s", "b", Fraction(1, 3), 0.0, Fraction(2, 7)),)
    third = Runtime(thirds, is_paused=True, is_withdrawn=True)
    for saved in (third, SAVED):
        file.save(saved)
        assert file.load() == saved
    # Earlier versions can read what never ends.
    assert not any(word in file.path.read_text() for word in ("clocks", "until", "maintenance"))
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == ["br.json"]
    file.save(Runtime())
    assert not file.path.exists()


def test_bug_the_drains_of_half_the_backends_of_a_large_config_were_lost_at_a_restart(tmp_path: Path) -> None:
    """The agent refused the file that it had written, because it was larger than 1 MiB."""
    name = "x" * 63
    many = (Override(name, f"{n:063}", Fraction(0), time.time(), Fraction(1)) for n in range(16_000))
    file, saved = RuntimeFile(tmp_path / "br.json"), Runtime(tuple(many))
    file.save(saved)
    assert file.load() == saved


TEXT = render_runtime(SAVED)
OTHERS = [
    ('"version": 1', '"version": 2'),
    ("true", "1"),
    ('"0.5"', "0.5"),
    ('"0.5"', '"1e999999999"'),
    ('"0.5"', '"1/0"'),
    ('"0.5"', '"-1"'),
    ('"70"', '"99999999999"'),
    ("1.5", "NaN"),
    ('"fips2"', '""'),
    ('"backend"', '"server"'),
    ("[", '[{"service": "dns", "backend": "fips2", "weight": "1", "configured": "1", "since_s": 1},'),
]
BROKEN = [b"", b"{}", b"[1]", b"\xff", b"[" * 5000, *(TEXT.replace(*other).encode() for other in OTHERS)]


@pytest.mark.parametrize("data", BROKEN)
def test_a_broken_file_is_set_aside(tmp_path: Path, data: bytes) -> None:
    file = RuntimeFile(tmp_path / "br.json")
    file.path.write_bytes(data)
    with pytest.raises(StateUnusable, match="cannot be used"):
        file.load()
    assert (tmp_path / "br.json.broken").read_bytes() == data
    assert file.load() == Runtime()


@pytest.mark.parametrize(
    ("boot", "monotonic_s", "utc_s", "left_s"),
    [
        ("one", 1030.0, 5030.0, 70.0),
        ("one", 1030.0, 0.0, 70.0),
        ("one", 1030.0, 1e9, 70.0),
        ("two", 7.0, 5030.0, 70.0),
        ("two", 7.0, 4000.0, 100.0),
        ("two", 7.0, 9000.0, -7.0),
    ],
)
def test_the_clock_counts_within_a_boot_and_the_date_after_another(
    monkeypatch: pytest.MonkeyPatch, boot: str, monotonic_s: float, utc_s: float, left_s: float
) -> None:
    """Saved 100 s before the end, at 1,000 s on the clock and 5,000 s UTC; what is left by these clocks."""
    timed = Override("s", "b", Fraction(0), 0.0, Fraction(1), 1100.0, is_maintenance=True)
    clocks = runtime_file._clocks
    monkeypatch.setattr(runtime_file, "_clocks", lambda: {"boot": "one", "monotonic_s": 1000.0, "utc_s": 5000.0})
    text = render_runtime(Runtime((timed,)))
    monkeypatch.setattr(runtime_file, "_clocks", lambda: {**clocks(), "boot": boot})
    monkeypatch.setattr("time.monotonic", lambda: monotonic_s)
    monkeypatch.setattr("time.time", lambda: utc_s)
    assert parse_runtime(text.encode()).overrides == (replace(timed, until_s=monotonic_s + left_s),)


def test_a_broken_file_on_a_read_only_disk_stays(tmp_path: Path) -> None:
    (tmp_path / "br.json").write_text("{")
    run(["mount", "--bind", "-o", "ro", str(tmp_path), str(tmp_path)])
    try:
        with pytest.raises(StateUnusable, match="cannot be used: it is not JSON") as raised:
            RuntimeFile(tmp_path / "br.json").load()
    finally:
        run(["umount", str(tmp_path)])
    assert raised.value.renamed is None


FIPS2 = {"service": "dns", "backend": "fips2"}


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
        assert {path.name for path in small_disk.iterdir()} == {"state.json", "rest"}
        assert (seen(client).overrides, seen(client).is_paused, scene.flows) == (before.overrides, False, flows)
        # Without any override there is no file, so this needs no space.
        client.ask("undrain", FIPS2)
    with on_disk.agent() as (_, client):
        assert seen(client).overrides == ()


def test_bug_a_request_that_was_refused_was_in_force_after_a_restart(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was replaced, and then its directory could not be written (fsync(2), EIO)."""
    with scene.agent() as (_, client):
        client.ask("drain", FIPS2)
        with monkeypatch.context() as patch:
            patch.setattr("xenoovs.switch.undo_journal.sync_directory", Mock(side_effect=OSError(5, "I/O error")))
            with pytest.raises(AgentRefused, match="I/O error; nothing was changed"):
                client.ask("pause")
    with scene.agent() as (_, client):
        assert (seen(client).is_paused, len(seen(client).overrides)) == (False, 1)


def test_bug_a_lock_on_a_full_disk_was_reported_as_a_problem_of_the_output(small_disk: Path) -> None:
    (small_disk / "rest").write_bytes(bytes(8192))
    locks = BridgeLocks(AgentPaths(small_disk, small_disk), small_disk / "ovsbr1.sock")
    with pytest.raises(ListenError, match=r"cannot write .*/ovsbr1.lock: No space left on device"):
        locks.hold(("ovsbr1",))
    assert [path.name for path in small_disk.iterdir()] == ["rest"]


def test_a_failed_save_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RuntimeFile(tmp_path / "br.json")
    file.save(SAVED)

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        file.save(Runtime(is_paused=True))
    assert file.load() == SAVED
    assert [path.name for path in tmp_path.iterdir()] == ["br.json"]


def test_a_slow_disk_delays_the_answer_alone(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, written, fsync = Event(), Event(), os.fsync

    def slow(descriptor: int) -> None:
        begun.set()
        assert written.wait(PATIENCE_S)
        fsync(descriptor)

    with scene.agent() as (agent, client), ThreadPoolExecutor() as others:
        monkeypatch.setattr(os, "fsync", slow)
        answer = others.submit(client.ask, "drain", FIPS2)
        assert begun.wait(PATIENCE_S)
        assert seen(client).overrides == ()
        victim = next(iter(scene.flows))
        scene.switch.remove_flow("ovsbr1", victim.key)
        eventually(lambda: victim in scene.flows, "a round restores the flow")
        assert not answer.done()
        written.set()
        assert answer.result()["is_applied"]
        assert agent.state.runtime.overrides != ()
        assert scene.state.exists()
        # A config that ends the override removes it from the file.
        scene.edit("weight: 70", "weight: 60")
        eventually(lambda: not scene.state.exists(), "the file is removed")


def test_a_generation_of_a_fleet_that_changes_nothing_here_has_no_round(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a thousand DPUs compared all its flows for a drain on another DPU, and twice for its own."""
    scene.config.write_text("version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1}\n")
    view = settled(given(EMPTY, SMALL_CONFIG))
    config, heard = FleetConfig(scene.config, view, "dpu1"), list[FleetView | None]()
    rounds = Mock(wraps=Engine.round)
    monkeypatch.setattr(Engine, "round", lambda *args, **options: rounds(*args, **options))
    with scene.agent(config=config, resync_s=1e6) as (agent, _):
        before, flows = rounds.call_count, scene.flows
        agent.store.subscribe(RoundFacts, lambda _: heard.append(config.good.view))
        later = replace(view, generation=view.generation + 1)
        config.offer(later)
        agent.wake()
        eventually(lambda: later in heard, "the next generation is applied")
        assert rounds.call_count == before
        config.offer(settled(overridden(later, ("dns", "fips2"))))
        agent.wake()
        eventually(lambda: scene.flows != flows, "the drain begins")
        assert rounds.call_count > before


# What operators change on a running agent, where no scenario of tests/scenario/running can tell it.


def test_events_are_numbered_and_followed(scene: Scene) -> None:
    with scene.agent() as (_, client):
        first = client.ask("events")
        assert [event["number"] for event in first["events"]] == list(range(1, first["last"] + 1))
        client.ask("pause")
        assert next(client.events(first["last"]))["text"].startswith("paused")
        later = client.ask("events", query={"since": first["last"]})
        assert [event["level"] for event in later["events"]] == ["info"]


def test_bug_a_drain_was_answered_as_unknown_backend_if_a_reload_removed_it_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene.agent() as (agent, client):
        next_round = agent.next_round

        async def reloaded() -> Outcome:
            scene.edit("fips2", "fips9")
            scene.edit("02:00:5e:10:00:02", "02:00:5e:10:00:09")
            agent.reload()
            while not agent.reloader.reloads:
                await asyncio.sleep(0.01)
            return await next_round()

        monkeypatch.setattr(agent, "next_round", reloaded)
        answer = client.ask("drain", FIPS2)
    assert answer["message"].startswith("dns/fips2 is not in the config any more: ")
    assert answer["is_applied"]


def test_a_response_reports_the_round_of_the_change(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a round was already due: the round after the request then has no changes left."""
    longer_than_a_resync_s = 0.7
    monkeypatch.setattr("xenoovs.agent.reload.require_possible", lambda *_, **__: time.sleep(longer_than_a_resync_s))
    with scene.agent() as (_, client):
        assert client.ask("drain", FIPS2)["clients_moved"].keys() == {"dns"}


def no_mac(balancer: Balancer) -> Balancer:
    """As `with_macs` while this machine has not answered: it has no weight."""
    return with_weights(balancer, {("dns", "fips2"): Fraction(0)})


def none_known(_: Balancer) -> Balancer:
    raise MacUnknown(unknown={})


@pytest.mark.parametrize("resolve", [no_mac, none_known])
def test_an_override_of_a_backend_without_a_mac_yet_is_that_of_the_config(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, resolve: Callable[[Balancer], Balancer]
) -> None:
    """Such an override ended with the next reload, because it stored the weight 0."""
    with scene.agent() as (agent, client):
        with monkeypatch.context() as patch:
            patch.setattr(agent.engine, "resolve", resolve)
            with suppress(AgentRefused):
                client.ask("maintenance", FIPS2)
        assert {(float(each.weight), float(each.configured)) for each in agent.state.runtime.overrides} == {(70, 70)}


def test_a_drain_can_be_undone_after_an_edited_config_left_none_but_drained_backends() -> None:
    balancer = small.balancer(small.service(small.claim(), 1, 1))
    first, second = (Override("s", name, Fraction(0), 0.0, Fraction(1)) for name in ("b0", "b1"))
    with pytest.raises(CompileError, match="every backend with a weight is drained"):
        require_possible(HealthTracker(), balancer, (first, second))
    require_possible(HealthTracker(), balancer, (first,), instead_of=(first, second))


def test_a_reply_that_makes_an_internal_error_is_a_failed_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = Servers()
    scene.edit("    backends:", "    agent_check: {port: 8080, interval: 20ms, timeout: 10ms}\n    backends:")
    scene.edit("weight: 70", "weight: 2, address: 198.51.100.2")
    scene.edit("weight: 30", "weight: 2, address: 198.51.100.3")
    with scene.agent(probe=servers.probe) as (_, client):

        def is_told(text: str) -> bool:
            return text in str([*notices(parse_snapshot(client.ask("status")["snapshot"]))])

        with monkeypatch.context() as patch:
            patch.setattr(health, "with_reply", Mock(side_effect=ZeroDivisionError))
            eventually(lambda: is_told("internal error: ZeroDivisionError: "), "the error")
        servers.replies = dict.fromkeys(("198.51.100.2", "198.51.100.3"), "drain")
        eventually(lambda: is_told("all servers advertise drain or 0%"), "their next replies")
        assert not is_told("does not reply")
