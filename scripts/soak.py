"""`make soak`: runs an agent for ten minutes with a change every second; checks its memory and the megaflows.

Changes in turn: weights, a backend more or less, a service more or less, a text that is no config, the same text again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from ipaddress import IPv4Address
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.ovs.dummy import DummyBridge, running_dummy_ovs, udp_packet
from xenoovs.compile.pipeline import Stage
from xenoovs.model.load import load_config
from xenoovs.switch.process import try_run

_XENOOVS = str(Path(sys.executable).parent / "xenoovs")
_CLIENTS = 2000
_WARM = 0.75
"""Part of the time in which the caches, the last thousand events and the pools of malloc(3) may fill."""
_GROWTH = 1.05
TEXTS = 40
"""Configs that alternate in ten minutes. The caches of flows as text hold 65,536 entries each: without repetition they
would grow all the time, like a leak."""
_PATIENCE_S = 60.0


def main() -> int:
    """Run for as many seconds as the command line says (600); 1: memory grew, or flows or megaflows are wrong."""
    problems = soak(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def soak(duration_s: float, *, texts: int = TEXTS) -> list[str]:
    """Run for so many seconds with `texts` alternating configs, all within the warm-up; return the problems."""
    with tempfile.TemporaryDirectory() as name, running_dummy_ovs(Path(name) / "ovs") as ovs, ovs.bridge() as bridge:
        config = Path(name) / "config.yaml"
        config.write_text(_config(random.Random(0)))
        argv = [_XENOOVS, "agent", str(config), "--db", ovs.ovs.db, "--log", "json"]
        environment = {**os.environ, **ovs.ovs.env, "XDG_RUNTIME_DIR": name}
        with (Path(name) / "log").open("w") as log, subprocess.Popen(argv, stderr=log, env=environment) as agent:
            try:
                sizes = change_and_watch(agent, config, duration_s, texts=texts)
                return [*growth(sizes), *differences(bridge, config)]
            finally:
                agent.terminate()


def change_and_watch(agent: subprocess.Popen[bytes], config: Path, duration_s: float, *, texts: int) -> list[int]:
    """Resident kB, once a second after the time to warm up."""
    chance, begun_s, changes, sizes = random.Random(1), time.monotonic(), 0, list[int]()
    made = [_config(chance) for _ in range(texts)]
    while (passed_s := time.monotonic() - begun_s) < duration_s:
        if agent.poll() is not None:
            raise RuntimeError(f"the agent ended with {agent.returncode} after {changes} changes")
        config.write_text("{[" if changes % 10 == 9 else chance.choice(made))
        changes += 1
        if passed_s >= _WARM * duration_s:
            sizes.append(_resident_kib(agent.pid))
        if changes % 60 == 0:
            print(f"{changes} changes, {_resident_kib(agent.pid)} KiB", flush=True)
        time.sleep(1)
    config.write_text(_config(random.Random(3)))
    print(
        f"{changes} changes in {passed_s:.0f} s, {_resident_kib(agent.pid)} KiB, {_descriptors(agent.pid)} files open"
    )
    return sizes


def growth(sizes: list[int]) -> list[str]:
    """What is wrong where the last fifth of the sizes has its peak more than 5% above that of the first one."""
    part = max(1, len(sizes) // 5)
    first, last = max(sizes[:part]), max(sizes[-part:])
    print(f"after warming up {first} KiB, at the end {last} KiB")
    return [f"memory grew from {first} to {last} KiB"] if last > first * _GROWTH else []


def differences(bridge: DummyBridge, config: Path) -> list[str]:
    """The flows are those of the last config, and each block that a packet met has one megaflow."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        plan = try_run([_XENOOVS, "plan", str(config), "--db", bridge.ovs.db], timeout_s=60)
        if plan.exit_code == 0 or time.monotonic() > until_s:
            break
        time.sleep(0.5)
    bridge.settle()
    source = random.Random(2)
    vips = [str(vip) for service in load_config(config).services for vip in service.claim.vips]
    packets = [
        udp_packet(str(IPv4Address(source.getrandbits(32))), destination=vip) for vip in vips for _ in range(_CLIENTS)
    ]
    bridge.send("p0", packets)
    megaflows = sum("eth_type(0x0800)" in line for line in bridge.megaflows())
    blocks = sum(f"table={Stage.BALANCE.table}," in line for line in bridge.dump_flows(version="OpenFlow14"))
    print(f"{blocks} blocks, {megaflows} megaflows; plan ended with {plan.exit_code}")
    wrong = [] if plan.exit_code == 0 else [f"the bridge differs from the config: {plan.stdout}"]
    return [*wrong, *([] if megaflows == blocks else [f"{megaflows} megaflows of {blocks} blocks"])]


def _config(chance: random.Random) -> str:
    services = chance.randint(1, 4)
    lines = ["version: 1", "switch: {bridge: ovsbr1, ingress: [p0], egress: p1}", "services:"]
    for service in range(services):
        lines += [
            f"  - name: service-{service}",
            f"    vip: 10.3.10.{service + 1}",
            "    protocol: udp",
            "    ports: [53]",
        ]
        lines += ["    backends:"]
        for backend in range(chance.randint(1, 6)):
            mac = f"02:00:00:00:{service:02x}:{backend:02x}"
            lines.append(f"      - {{name: b{backend}, mac: '{mac}', weight: {chance.randint(1, 9)}}}")
    return "\n".join(lines) + "\n"


def _resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0])


def _descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


if __name__ == "__main__":
    sys.exit(main())
