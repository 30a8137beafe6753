"""The two ways to a switch beside each other: 16,000 flows, and how soon flows follow a port that goes down."""

from __future__ import annotations

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

from scripts.bench.configs import large_config
from scripts.bench.measure import Row, function, process
from tests.command_line import SMALL_CONFIG
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.daemon import Agent
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.tasks import LoopCall
from xenoovs.compile.program import compile_config
from xenoovs.controller.listen import parse_address
from xenoovs.controller.server import ControllerSwitch, Server
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Appointment, Engine
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.log import LOGGER
from xenoovs.model.load import parse_config
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import render_bundle
from xenoovs.switch.bridge_controller import attach
from xenoovs.switch.endpoint import find_endpoint
from xenoovs.switch.management import ManagementSwitch

_ROUNDS = 5
_PORTS = ("p0", "p1", "p2")
_PATIENCE_S = 30.0
_WEIGHTS = (128, 64, 32, 16, 8, 4, 2, 1, 1)


def rows() -> Iterator[Row]:
    """Flows by ovs-ofctl and by the controller in turn; then a port goes down and up again and again."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        ovs = start_private_ovs(directory / "ovs", datapath=Datapath.DUMMY)
        try:
            with closing(_server(ovs)) as server:
                yield from _install(ovs, server, directory)
                yield from _port_down(ovs, server, directory)
        finally:
            stop_private_ovs(ovs)


def _server(ovs: PrivateOvs) -> Server:
    """A controller to whom the bridge of the config is attached."""
    ports = [word for port in _PORTS for word in ("--", "add-port", "ovsbr1", port)]
    types = [word for port in _PORTS for word in ("--", "set", "interface", port, "type=dummy")]
    ovs.vsctl("add-br", "ovsbr1", "--", "set", "bridge", "ovsbr1", "datapath-type=dummy", *ports, *types)
    logging.getLogger(LOGGER).addHandler(logging.NullHandler())
    server = Server(parse_address("127.0.0.1:0"))
    place = server.expect("ovsbr1")
    attach(find_endpoint(db=ovs.db, env={}), "ovsbr1", target=server.target)
    place.wait(timeout_s=_PATIENCE_S)
    return server


def _install(ovs: PrivateOvs, server: Server, directory: Path) -> Iterator[Row]:
    switch = ControllerSwitch(server.registry)
    flows = compile_config(parse_config(large_config(directory).read_bytes(), file="large.yaml")).flows
    add = Bundle(tuple(FlowMod(Command.ADD, flow) for flow in flows))
    file, target = directory / "flows.txt", f"unix:{ovs.directory}/ovsbr1.mgmt"
    file.write_text(render_bundle(add))
    argv = ["ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", target, str(file)]
    clear = ["ovs-ofctl", "-O", "OpenFlow14", "del-flows", target]
    by_ofctl, by_controller, dumps = list[float](), list[float](), list[float]()
    for _ in range(_ROUNDS):
        process(clear, runs=1)
        by_ofctl.append(process(argv, runs=1).wall_s)
        process(clear, runs=1)
        by_controller.append(function(lambda: switch.apply("ovsbr1", add), runs=1))
        dumps.append(function(lambda: switch.dump_flows("ovsbr1"), runs=1))
    process(clear, runs=1)
    ratio = statistics.median(mine / theirs for mine, theirs in zip(by_controller, by_ofctl, strict=True))
    yield Row(f"ovs-ofctl --bundle add-flows, {len(flows)} flows", statistics.median(by_ofctl), "s")
    yield Row("controller, the same flows", statistics.median(by_controller), "s")
    yield Row("  / ovs-ofctl", ratio, "x", 2.5)
    yield Row("controller, the same flows read with their counters", statistics.median(dumps), "s")


def _port_down(ovs: PrivateOvs, server: Server, directory: Path) -> Iterator[Row]:
    config = directory / "small.yaml"
    backends = (
        f"      - {{name: b{i}, mac: 02:00:00:00:00:{i:02x}, weight: {weight}, egress: p{1 + i % 2}}}\n"
        for i, weight in enumerate(_WEIGHTS)
    )
    head, backends_of_it, _ = SMALL_CONFIG.partition("backends:\n")
    config.write_text(head + backends_of_it + "".join(backends))
    local = ManagementSwitch(find_endpoint(db=ovs.db, env={}))
    place = server.expect("ovsbr1")
    engine = _Timed(ControllerSwitch(server.registry, local), lambda: place.ports_down)
    loop = asyncio.new_event_loop()
    agent = Agent(ConfigFile(config), engine, probe=Prober().probe)
    place.on_change(LoopCall(loop, agent.request_round))
    thread = Thread(target=loop.run_until_complete, args=(agent.run(),))
    thread.start()
    try:
        engine.wait_for(1)
        durations_s = list(_links(ovs, engine))
    finally:
        loop.call_soon_threadsafe(agent.stop)
        thread.join()
        place.on_change(lambda: None)
        loop.close()
    yield Row("port down to flows changed and read back, 9 backends", 1000 * statistics.median(durations_s), "ms", 50)
    yield Row("  the slowest of them", 1000 * max(durations_s), "ms")


def _links(ovs: PrivateOvs, engine: _Timed) -> Iterator[float]:
    """Seconds from the start of the command that takes a port down, to the end of the round."""
    for number in range(1, 2 * _ROUNDS + 1):
        state = "down" if number % 2 else "up"
        begun_s = time.monotonic()
        ovs.appctl("netdev-dummy/set-admin-state", "p2", state)
        engine.wait_for(1 + number)
        if state == "down":
            yield engine.changed_s[-1] - begun_s
        time.sleep(0.1)


class _Timed(Engine):
    """Notes when a round that changed something was at its end."""

    def __init__(self, switch: ControllerSwitch, ports_down: Callable[[], frozenset[str]]) -> None:
        super().__init__(switch, ports_down=ports_down)
        self.changed_s: list[float] = []

    def round(
        self,
        desired: DesiredState,
        *,
        now_s: float,
        urgent: bool = False,
        strict: bool = False,
        appointment: Appointment | None = None,
    ) -> Change:
        done = super().round(desired, now_s=now_s, urgent=urgent, strict=strict, appointment=appointment)
        if not done.difference.is_empty:
            self.changed_s.append(time.monotonic())
        return done

    def wait_for(self, rounds: int) -> None:
        """Until so many rounds have changed something."""
        deadline = time.monotonic() + _PATIENCE_S
        while len(self.changed_s) < rounds:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(self.changed_s)} of {rounds} rounds have changed something")
            time.sleep(0.001)
