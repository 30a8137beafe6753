"""Runs every file of operators/: commands of `xenoovs fleet` at their times, on a store with a real controller.

DPUs install what is stored at once, and report it. Who waits moves the clock. `switch_after_s`: what the controller
gives them to switch together. Keys of a step: `run` (a command, whose status, 0 without `exit`, and texts of its
output, `says`, must be true; it `omits` others), `report` (what DPUs report from then on, by name: columns of their
reports, of which `down` names backends), `dies` (DPUs that report no more), `unread` (whether the controller can read
no reports), `edit` (texts of `probed.yaml`, and what `edited.yaml` has instead), `off_s` (how far the clock of the host
is ahead), `controller` (`killed`: another one takes over), and what must be true then: `wave`, `state` (of the newest
config), `begun` (DPUs that have what is rolled out), `history` (the newest actions), `frozen` (roles of operators so
far), `owners` (backends with clients), `has` (percent of the clients by DPU and backend). `more.yaml` is the config of
the fleet with one backend more, `weights.yaml` that with other weights, `probed.yaml` and `heavier.yaml` those with
health checks, `pinned.yaml` that with a drain, `mail.yaml` that with health checks and one service more, `sites.yaml`
that with a backend at each of two sites, `elsewhere.yaml` the same with another VIP.
"""

from __future__ import annotations

import logging
import re
import shlex
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, MORE, committed, given, settled
from tests.golden.test_outputs import printed
from tests.snapshots import NOW_S
from xenoovs.dataclass import replace
from xenoovs.display import percent
from xenoovs.fleet.commands import client
from xenoovs.fleet.controller import ActiveSign, FleetController
from xenoovs.log import LOGGER
from xenoovs.store.client import CommitOutcome, StoreConnection
from xenoovs.store.view import Changes, Dpu, DpuStatus, FleetView

SCENARIOS = sorted((Path(__file__).parent / "operators").glob("*.yaml"))
TICK_S = 1.0
CONFIGS = {
    "more.yaml": MORE,
    "weights.yaml": SMALL_CONFIG.replace("weight: 30", "weight: 50"),
    "pinned.yaml": SMALL_CONFIG.replace("    vip:", "    drain: {mode: pin, timeout: 60s}\n    vip:"),
    "sites.yaml": SMALL_CONFIG.replace("    vip:", "    groups: [east, west]\n    vip:")
    .replace("weight: 70", "weight: 70, groups: east")
    .replace("weight: 30", "weight: 30, groups: west"),
}
for probed, name in (("probed", "more"), ("heavier", "weights")):
    text = CONFIGS[f"{name}.yaml"].replace("services:", "health: {probe: tcp, port: 80}\nservices:")
    CONFIGS[f"{probed}.yaml"] = re.sub(r"fips(.),", r"fips\1, address: 192.0.2.\1,", text)
CONFIGS["mail.yaml"] = (
    CONFIGS["probed.yaml"]
    + """\
  - name: mail
    vip: 203.0.113.2
    backends:
      - {name: m6, mac: 02:00:5e:10:00:06, address: 192.0.2.6, weight: 1}
      - {name: m7, mac: 02:00:5e:10:00:07, address: 192.0.2.7, weight: 1}
"""
)
CONFIGS["elsewhere.yaml"] = CONFIGS["sites.yaml"].replace("10.3.10.45", "10.3.10.46")


class World:
    """Both databases of a fleet, its controller, and a clock. What is not looked at has no time."""

    connection = StoreConnection(is_connected=True, remote="unix:fleet.sock", since_s=NOW_S, is_leader=True)

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        dpus = {
            name: Dpu(name, frozenset(about.get("groups", ())), about.get("rack", ""), about.get("wave", 3))
            for name, about in scenario["dpus"].items()
        }
        self._view = settled(given(replace(EMPTY, dpus=dpus), SMALL_CONFIG))
        self._steps: Iterator[dict[str, Any]] = iter(scenario["steps"])
        self._next: dict[str, Any] | None = next(self._steps)
        self._reports, self._last = dict[str, dict[str, Any]](), dict[str, DpuStatus]()
        self._turns, self._frozen, self._unread = 0, list[bool](), False
        self._switch_after_s = scenario.get("switch_after_s", 0)
        self.now_s = self.off_s = 0.0
        self._controller = self._started()

    def _started(self) -> FleetController:
        store: Any = self
        return FleetController(
            store,
            store,
            sign=ActiveSign(Path()),
            bind_operators=self._frozen.append,
            changed=store,
            switch_after_s=self._switch_after_s,
        )

    # The store.

    def view(self) -> FleetView:
        return self._view

    def commit(self, generation: int, changes: Changes, **_: object) -> CommitOutcome:
        assert generation == self._view.generation
        self._view = committed(self._view, changes)
        return CommitOutcome.COMMITTED

    def wait_changed(self, before: FleetView | None, *, timeout_s: float) -> FleetView:
        end_s = self.now_s + timeout_s
        while self._view is before and self.now_s < end_s:
            self.sleep(TICK_S)
        return self._view

    def statuses(self) -> dict[str, DpuStatus] | None:
        return None if self._unread else self._statuses()

    def _statuses(self) -> dict[str, DpuStatus]:
        at, seen_ms = self._view.generation, int((NOW_S + self.now_s) * 1000)
        status = DpuStatus("", applied=at, sampled=at, voted=at, seen_ms=seen_ms)
        found = {name: replace(status, name=name, **self._reports.get(name, {})) for name in self._view.dpus}
        return {name: replace(each, down=self._targets(each.down)) for name, each in found.items()} | self._last

    def _targets(self, backends: Iterable[str]) -> frozenset[str]:
        """The targets of backends, which are named for their addresses."""
        addresses = {f"192.0.2.{name[-1]}" for name in backends}
        return frozenset(target for target in self._view.watches if target.split("/")[0] in addresses)

    # The event that wakes the controller, for one turn.

    def wait(self, _timeout_s: float) -> bool:
        return False

    def clear(self) -> None:
        self._turns += 1

    # Time.

    def sleep(self, time_s: float) -> None:
        end_s = self.now_s + time_s
        while self.now_s < end_s:
            self.now_s += min(TICK_S, end_s - self.now_s)
            while self._next is not None and self._next["at"] <= self.now_s:
                step, self._next = self._next, next(self._steps, None)
                self._do(step)
            self._decide()

    def _decide(self) -> None:
        end = self._turns + 1
        self._controller.run(lambda: self._turns >= end)

    def play(self) -> None:
        while self._next is not None:
            self.sleep(TICK_S)

    def _do(self, step: dict[str, Any]) -> None:
        self.off_s = step.get("off_s", self.off_s)
        self._reports |= step.get("report", {})
        self._last |= {name: self._statuses()[name] for name in step.get("dies", ())}
        self._unread = step.get("unread", self._unread)
        if "edit" in step:
            text = CONFIGS["probed.yaml"]
            for old, new in step["edit"].items():
                assert old in text
                text = text.replace(old, new)
            Path("edited.yaml").write_text(text)
        if "controller" in step:
            self._controller = self._started()
        if "run" in step:
            words = shlex.split(step["run"])
            expected = self._foretold(words) if words[0] in ("drain", "weight") and not step.get("exit") else {}
            said = printed(["fleet", *words])
            assert expected == {key: self._share(*key) for key in expected}, (step, self.now_s)
            assert f"[exit status {step.get('exit', 0)}]" in said, (step, said)
            for text in step.get("says", ()):
                assert text in said, (step, said)
            for text in step.get("omits", ()):
                assert text not in said, (step, said)
        view = self._view
        newest = view.intents[max(view.intents)]
        shown: dict[str, Any] = {
            "wave": view.wave,
            "state": newest.state.value,
            "begun": sum(dpu.wave <= view.wave for dpu in view.concerned.values()),
            "history": [each.text for _, each in sorted(view.actions.items(), reverse=True)],
            "frozen": self._frozen,
            "owners": sorted({owner for each in view.services.values() for owner in each.active.owners}),
            "has": {dpu: _shares(view.of_dpu(dpu)) for dpu in step.get("has", ())},
        }
        for key in shown.keys() & step.keys():
            found = shown[key][: len(step[key])] if key == "history" else shown[key]
            assert found == step[key], (step, self.now_s, newest.comment)

    def _foretold(self, words: list[str]) -> dict[tuple[str, str, str], str]:
        """What --dry-run says that backends will have, by service, groups and backend."""
        said, before = printed(["fleet", *(word for word in words if word != "--yes"), "--dry-run"]), self._view
        assert (self._view, "--dry-run" in said) == (before, False)
        _, _, table = said.partition(" OVER CONFIG\n")
        rows = (line.split() for line in table.splitlines() if "%" in line)
        return {(service, " ".join(groups), name): then for service, *groups, name, _, then, _ in rows}

    def _share(self, service: str, groups: str, backend: str) -> str:
        (row,) = (
            row
            for row in self._view.services.values()
            if (row.service, ", ".join(sorted(row.groups)) or "all") == (service, groups)
        )
        return percent(row.active.shares().get(backend, Fraction(0)))


def _shares(view: FleetView) -> dict[str, int]:
    return {name: round(100 * share) for each in view.services.values() for name, share in each.active.shares().items()}


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_it_is_as_the_file_says(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in CONFIGS.items():
        Path(name).write_text(text)
    monkeypatch.setattr(logging.getLogger(LOGGER), "handlers", [logging.NullHandler()])
    monkeypatch.setenv("SUDO_USER", "ann")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr(socket, "gethostname", lambda: "store1")
    world = World(yaml.safe_load(file.read_text()))
    monkeypatch.setattr(time, "time", lambda: NOW_S + world.now_s + world.off_s)
    monkeypatch.setattr(time, "monotonic", lambda: world.now_s)
    # Threads that earlier tests left take none of this clock.
    mine, real = threading.get_ident(), time.sleep
    monkeypatch.setattr(time, "sleep", lambda s: (world.sleep if threading.get_ident() == mine else real)(s))
    store: Any = world
    # Programs that read the servers would take time of this clock.
    monkeypatch.setattr("xenoovs.fleet.watch.host_facts", lambda *_, **__: ())
    monkeypatch.setattr("xenoovs.fleet.commands.dpus.transact", lambda *_: None)
    monkeypatch.setattr(client, "fleet_store", lambda *_: nullcontext(client.FleetStore(store, store, Path("fleet"))))
    world.play()
