"""An Open vSwitch that accepts requests and answers none: each command reports it, and how to fix it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.command_line import CommandLine
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import PATIENCE_S
from xenoovs.datapath.fact import Unresponsive
from xenoovs.switch import endpoint, host_facts
from xenoovs.switch.endpoint import ANSWER_S, Endpoint, ask_database, ask_vswitchd

Ask = Callable[..., Unresponsive | None]

SHORT_S = 0.5
"""Time limit for a stopped process, which answers never. The other one gets PATIENCE_S."""


@pytest.fixture
def own_bridge(own_ovs: DummyOvs) -> Iterator[DummyBridge]:
    with own_ovs.bridge() as made:
        yield made


@pytest.fixture(params=["ovs-vswitchd", "ovsdb-server"])
def stopped(
    request: pytest.FixtureRequest, own_bridge: DummyBridge, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, int]]:
    """One of the two stopped: its name and its process id."""
    limits = {"ovs-vswitchd": PATIENCE_S, "ovsdb-server": PATIENCE_S} | {request.param: SHORT_S}
    for name, ask, process in (
        ("ask_vswitchd", ask_vswitchd, "ovs-vswitchd"),
        ("ask_database", ask_database, "ovsdb-server"),
    ):
        limited = partial(_ask, ask, limits[process])
        for module in (endpoint, host_facts):
            monkeypatch.setattr(module, name, limited)
    pid = own_bridge.ovs.pids()[("ovs-vswitchd", "ovsdb-server").index(request.param)]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield request.param, pid
    finally:
        os.kill(pid, signal.SIGCONT)


def _ask(ask: Ask, limit_s: float, here: Endpoint, *, patience_s: float = ANSWER_S) -> Unresponsive | None:
    """Ask with another time limit than that of the caller."""
    assert patience_s == ANSWER_S
    return ask(here, patience_s=limit_s)


def test_commands_say_who_does_not_answer_and_doctor_marks_the_rest_unknown(
    xenoovs: CommandLine, own_bridge: DummyBridge, config: object, stopped: tuple[str, int]
) -> None:
    name, pid = stopped
    for command in ("plan", "apply --yes", "status --from-bridge", "verify-offload", "why"):
        said = xenoovs(*command.split(), config, "--db", own_bridge.ovs.db)
        assert (said.status, said.out) == (1, "")
        assert f"{name} (process {pid}) has not answered for 500ms: it is stopped, as by SIGSTOP" in said.err
        assert f"to fix it, `kill -CONT {pid}`" in said.err
    said = xenoovs("doctor", config, "--db", own_bridge.ovs.db, "--fix", "--yes", "--restart-ovs")
    assert said.status == 2
    assert "--fix does nothing while Open vSwitch does not answer: fix that first" in said.out
    assert "safe to do now" not in said.out
    said = xenoovs("doctor", config, "--db", own_bridge.ovs.db, "-o", "json")
    assert (said.status, said.err) == (2, "")
    first, *rows = json.loads(said.out)["checks"]
    silent = f"{name} (process {pid}) has not answered for 500ms: it is stopped, as by SIGSTOP"
    assert (first["check"], first["seen"], first["fix"]) == ("Open vSwitch runs", silent, f"kill -CONT {pid}")
    states = {(row["check"], row["subject"]): row["state"] for row in rows}
    if name == "ovsdb-server":
        assert states["database", None] == "unknown"
    else:
        of_the_daemon = [("build", None), ("hw-offload in effect", None), ("foreign flows", "ovsbr1")]
        assert {states[row] for row in of_the_daemon} == {"unknown"}
        assert states["port works", "p0"] == "unknown"
        assert states["hw-offload", None] == "wrong"
