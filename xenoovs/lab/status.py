"""The health of a lab: its Open vSwitch, its namespaces, and the answers of its backends."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack
from functools import partial
from selectors import EVENT_READ, DefaultSelector

from xenoovs.dataclass import dataclass
from xenoovs.display import span
from xenoovs.lab.host import check_root, namespaces_of
from xenoovs.lab.lab import Lab
from xenoovs.lab.responder import STATUS_PORT
from xenoovs.lab.servers import Failure, failures_of
from xenoovs.lab.topology import Machine
from xenoovs.switch.process import try_run

_TIMEOUT_S = 2.5
"""Longer than the delay of a backend that `lab fail --how slow` made slow."""


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """The health of a backend machine. `answer`: its answer to a query for its names, or why there is none. `received`:
    packets that reached it since `up`; None if its namespace is missing."""

    machine: Machine
    failure: Failure | None
    latency_s: float | None
    answer: str
    received: int | None

    @property
    def is_up(self) -> bool:
        """Return whether the machine answers, and `fail` has not made it fail."""
        return self.latency_s is not None and self.failure is None


@dataclass(frozen=True, slots=True)
class LabStatus:
    """The health of a lab. `ovs_pids`: ovs-vswitchd, then ovsdb-server. `missing`: missing namespaces."""

    name: str
    directory: str
    bridge: str
    ports: tuple[str, ...]
    db: str
    ovs_pids: tuple[int, ...]
    missing: tuple[str, ...]
    machines: tuple[MachineStatus, ...]

    @property
    def is_healthy(self) -> bool:
        return self.state == "up"

    @property
    def state(self) -> str:
        """Return `up`, `failing` if only backends that `lab fail` made fail are down, else `damaged`."""
        if len(self.ovs_pids) < 2 or self.missing or any(not m.is_up and m.failure is None for m in self.machines):
            return "damaged"
        return "up" if all(machine.is_up for machine in self.machines) else "failing"


def lab_status(lab: Lab) -> LabStatus:
    """Return the health of a lab. Raises LabError without root."""
    check_root()
    topology, failures, unasked = lab.topology, failures_of(lab), (None, "cannot be asked")
    present = namespaces_of(lab.name)
    answers = _answers(lab) if topology.switch_namespace in present else {}
    return LabStatus(
        lab.name,
        str(lab.directory),
        topology.bridge,
        topology.ports_of(topology.bridge),
        lab.ovs.db,
        lab.ovs.pids(),
        missing=tuple(namespace for namespace in topology.namespaces if namespace not in present),
        machines=tuple(
            MachineStatus(one, failures.get(one.label), *answers.get(one.address, unasked), _received(one))
            for one in topology.machines
        ),
    )


def _answers(lab: Lab) -> dict[str, tuple[float | None, str]]:
    """Ask all machines for their names, from the namespace of health checks. Return latency in seconds and answer of
    each address; without an answer, None and the reason."""
    from xenoovs.agent.probe.sockets import in_namespace  # Not above: help of lab commands needs no asyncio.

    answers: dict[str, tuple[float | None, str]] = {}
    with ExitStack() as stack:
        selector = stack.enter_context(DefaultSelector())
        for address in (machine.address for machine in lab.topology.machines):
            make = partial(socket.socket, socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
            answers[address] = None, f"no answer in {span(_TIMEOUT_S)}"
            try:
                sock = stack.enter_context(in_namespace(lab.topology.switch_namespace, make))
                sock.settimeout(0)
                asked_s = time.monotonic()
                sock.connect((address, STATUS_PORT))
                sock.send(b"\n")
                selector.register(sock, EVENT_READ, (address, asked_s))
            except OSError as error:
                answers[address] = None, (error.strerror or str(error)).lower()
        end_s = time.monotonic() + _TIMEOUT_S
        while selector.get_map() and (left_s := end_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                sock, (address, asked_s) = selector.unregister(key.fileobj).fileobj, key.data  # type: ignore[assignment]
                try:
                    answers[address] = time.monotonic() - asked_s, sock.recv(2048).decode(errors="replace").strip()
                except OSError as error:
                    answers[address] = None, (error.strerror or str(error)).lower()
    return answers


def _received(machine: Machine) -> int | None:
    done = try_run(["ip", "-n", machine.namespace, "-s", "-j", "link", "show", "eth0"])
    return int(json.loads(done.stdout)[0]["stats64"]["rx"]["packets"]) if done.exit_code == 0 else None
