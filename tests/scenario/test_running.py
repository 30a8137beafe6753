"""Runs every file of running/: a whole agent on a switch in memory, what it is asked, and what happens to its files.

`config` is the text of its config, by default SMALL_CONFIG. With `confirm` it takes changes back that nobody confirms.
What happens in a step, in this order: `down` (addresses of backends that do not answer), `replies` (of the agents of
servers, by address; null: none), `lost_reply` (the next change of flows is made and seems to have failed), `silent`
(whether the switch sends no flows), `ports` (of the bridge), `delete_flow`, `learned` (a flow that the switch learns
for the first service), `edit` (texts of the config, and what it has instead), `state` (text of the file of overrides),
`restart` (of the agent), `expire` (the time to confirm is over), `another_round`, `ask` (a route, or the `api` of
XenoFlow, and its request). The answer has `refused` (status, code and text; nothing has changed then) or `says`,
`answer`, and `moved` (services whose clients moved).

The other keys must be true then: at once after `ask`, `restart` and `another_round`, else soon. By service and backend:
`overrides` (of all), `states`, `shares`, `weights`, `last_change` (of those named). `paused`, `pending` (flow-mods),
`waits` (for a confirmation), `candidate` (a config that is not in use), `problem` (text of it), `notices`, `omits` (of
these), `events` (how many have a text, with facts), `reloads`, `rounds` with changes since the last step and services
that they `touched`, `saved` (files of overrides), `flows` (those of the step that has this name by `keep`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from tests.agent_support import Scene, Servers
from tests.command_line import SMALL_CONFIG
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.patience import eventually
from tests.unix_http import ask
from xenoovs.agent.control.xenoflow import xenoflow_routes
from xenoovs.agent.state import RoundFacts
from xenoovs.compile.pipeline import Stage, cookie_of
from xenoovs.errors import AgentRefused, CommandTimeout
from xenoovs.log import render_facts
from xenoovs.openflow.flow import Flow, service_of
from xenoovs.openflow.text import parse_dump
from xenoovs.show.conditions import notices
from xenoovs.show.snapshot import BackendView, parse_snapshot

SCENARIOS = sorted((Path(__file__).parent / "running").glob("*.yaml"))


class World:
    """An agent in its directory, its servers, and a switch."""

    def __init__(self, scenario: Mapping[str, Any], directory: Path, stack: ExitStack) -> None:
        self.switch = FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]))
        self.scene = Scene(directory, self.switch)
        self.scene.config.write_text(scenario.get("config", SMALL_CONFIG))
        self.servers, self.kept, self.names = Servers(), dict[str, set[Flow]](), dict[int, str]()
        self._confirm_s = 60.0 if scenario.get("confirm") else None
        self._running = stack
        self.start()

    def start(self) -> None:
        self._running.close()
        running = self.scene.agent(probe=self.servers.probe, confirm_s=self._confirm_s, routes=xenoflow_routes)
        self.agent, self.client = self._running.enter_context(running)
        self.rounds, self.bundles, self.made = 0, 0, 0
        self.agent.store.subscribe(RoundFacts, self.count)

    def count(self, _: RoundFacts) -> None:
        self.made += 1

    def happen(self, step: Mapping[str, Any], patch: pytest.MonkeyPatch) -> None:
        self.servers.down = step.get("down", self.servers.down)
        self.servers.replies |= step.get("replies", {})
        self.rounds, self.bundles = self.agent.state.round.rounds, len(self.switch.applied)
        if "lost_reply" in step:
            self.switch.lose_answer(CommandTimeout(argv=["ovs-ofctl"], timeout_s=1.0))
        if "silent" in step:
            patch.undo()
        if step.get("silent"):
            late = CommandTimeout(argv=["ovs-ofctl"], timeout_s=1.0)
            patch.setattr(self.switch, "dump_flow_text", Mock(side_effect=late))
        if "ports" in step:
            self.switch.set_ports(fake_bridge("ovsbr1", step["ports"]))
        if "delete_flow" in step:
            self.switch.remove_flow("ovsbr1", min(self.scene.flows, key=str).key)
        if "learned" in step:
            cookie = cookie_of(Stage.LEARNED, service_id=self.agent.lazy_snapshot().snapshot().services[0].service_id)
            flows = parse_dump(f" cookie={cookie:#x}, {step['learned']}")
            self.switch.install("ovsbr1", (each.flow for each in flows))
        text = self.scene.config.read_text()
        for old, new in step.get("edit", {}).items():
            assert old in text
            text = text.replace(old, new)
        if "edit" in step:
            self.scene.config.write_text(text)
        if "state" in step:
            self.scene.state.write_text(step["state"])
        if "restart" in step:
            self.start()
        if "expire" in step:
            later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600, time=time.time)
            patch.setattr("xenoovs.agent.reload.time", later)
            self.agent.wake()
            eventually(lambda: "not confirmed" in str(self.agent.config.problem), "the way back")
            patch.undo()
        if "another_round" in step:
            # One may be under way, which has read the flows already.
            end = self.made + 2
            eventually(lambda: self.made >= end, "another round")
        if "ask" in step:
            self._ask(step)

    def _answer(self, route: str, request: Any) -> Any:
        """`api`: of XenoFlow. Raises AgentRefused."""
        if route != "api":
            return self.client.ask(route, request)
        body, headers = json.dumps({"backends": request}).encode(), {"Content-Type": "application/json"}
        answer = ask(self.client.path, "/api", method="POST", body=body, headers=headers)
        document = json.loads(answer.body)
        if error := document.get("error"):
            raise AgentRefused(error["message"], status=answer.status, code=error["code"])
        return document

    def _ask(self, step: Mapping[str, Any]) -> None:
        ((route, request),) = step["ask"].items()
        before = self.agent.state.runtime, self.scene.flows
        said = ""
        try:
            found = self._answer(route, request)
        except AgentRefused as refused:
            said = f"{refused.status} {refused.code}: {refused}"
            assert before == (self.agent.state.runtime, self.scene.flows)
            assert step.get("refused"), said
        else:
            assert "refused" not in step, found
            said = found.get("message", "")
            assert step.get("moved", []) == sorted(found.get("clients_moved", ())) or "moved" not in step
            expected = step.get("answer", {})
            assert {key: found[key] for key in expected} == expected
        for text in (*step.get("refused", ()), *step.get("says", ())):
            assert text in said, said

    def seen(self, step: Mapping[str, Any]) -> dict[str, object]:
        """All that a step can check, of those backends and texts that it names."""
        shown = parse_snapshot(self.client.ask("status")["snapshot"])
        backends = {f"{service.name}/{one.name}": one for service in shown.services for one in service.backends}
        told = "\n".join(text for text, _ in notices(shown))
        events = [f"{event['text']} {render_facts(event['facts'])}" for event in self.client.ask("events")["events"]]
        changed = [mod.flow.cookie for _, bundle in self.switch.applied[self.bundles :] for mod in bundle.mods]
        self.names |= {service.service_id: service.name for service in shown.services}
        of_backend: dict[str, Callable[[BackendView], object]] = {
            "states": lambda one: one.state.value,
            "shares": lambda one: round(one.share, 3),
            "weights": lambda one: float(one.weight_in_use),
            "last_change": lambda one: one.last_change,
        }
        return {
            **{
                key: {name: value(backends[name]) for name in step.get(key, ()) if name in backends}
                for key, value in of_backend.items()
            },
            "overrides": {f"{each.service}/{each.backend}": float(each.weight) for each in shown.overrides},
            "paused": shown.is_paused,
            "pending": shown.pending_flow_mods > 0,
            "waits": shown.confirm_by_s is not None,
            "candidate": shown.candidate != "",
            "problem": (shown.config_problem.partition(step.get("problem") or "\0")[1] or shown.config_problem),
            "notices": [text for text in step.get("notices", ()) if text in told],
            "omits": [text for text in step.get("omits", ()) if text not in told],
            "events": {text: sum(text in event for event in events) for text in step.get("events", ())},
            "reloads": shown.reloads,
            "rounds": self.agent.state.round.rounds - self.rounds,
            "touched": sorted({self.names.get(each, "not shown yet") for each in map(service_of, changed) if each}),
            "saved": sorted(path.name for path in self.scene.directory.glob("state*")),
            "flows": step.get("flows") if self.kept.get(step.get("flows", "")) == self.scene.flows else "others",
        }


def differences(step: Mapping[str, Any], seen: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in seen.items() if key in step and step[key] != value}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_it_is_as_the_file_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = yaml.safe_load(path.read_text())
    with ExitStack() as stack:
        world = World(scenario, tmp_path, stack)
        for step in scenario["steps"]:
            world.happen(step, monkeypatch)
            if step.keys().isdisjoint(("ask", "restart", "another_round")):
                with suppress(AssertionError):
                    eventually(lambda step=step: not differences(step, world.seen(step)), "")  # type: ignore[misc]
            assert differences(step, world.seen(step)) == {}, step
            if "keep" in step:
                world.kept[step["keep"]] = world.scene.flows
