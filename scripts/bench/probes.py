"""What 1,000 probes cost in CPU seconds of this process: 1 s is one core for 1,000 a second. Servers are apart.

Once all at the same time, kind by kind; and once as the agent makes them, every second, with its schedule.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from ipaddress import IPv4Address

from scripts.bench.measure import Row
from xenoovs.agent.probe.check import Check
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.scheduler import ProbeScheduler
from xenoovs.agent.state import AgentState, ConfigFollowed, Probed
from xenoovs.agent.state_store import StateStore
from xenoovs.agent.tasks import BackgroundTasks
from xenoovs.model.address import Family, Mac
from xenoovs.model.balancer import Backend, Balancer, Claim, Health, OtherTraffic, ProbeKind, Service, Uplinks
from xenoovs.model.next_hop import Direct

_PROBES = 1000
_AT_ONCE = 50
_TIMEOUT_S = 5.0
_LOCAL = IPv4Address("127.0.0.1")
_PACED_S = 5

# Prints its ports: TCP that is only accepted, HTTP, UDP echo, DNS.
_SERVERS = """
import asyncio, dns.message, dns.rrset
async def http(reader, writer):
    try:
        await reader.readuntil(b"\\r\\n\\r\\n")
    except (ConnectionError, asyncio.IncompleteReadError):
        return writer.close()
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    writer.close()
class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport): self.transport = transport
    def datagram_received(self, data, sender): self.transport.sendto(self.answer(data), sender)
    def answer(self, data): return data
class Dns(Echo):
    def answer(self, data):
        message = dns.message.make_response(dns.message.from_wire(data))
        message.answer.append(dns.rrset.from_text("www.example.", 60, "IN", "A", "192.0.2.7"))
        return message.to_wire()
async def main():
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(http, "0.0.0.0", 0, backlog=4096)
    echo, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    name, _ = await loop.create_datagram_endpoint(Dns, local_addr=("127.0.0.1", 0))
    print(*(place.getsockname()[1] for place in (server.sockets[0],)),
          *(place.get_extra_info("sockname")[1] for place in (echo, name)), flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def rows() -> Iterator[Row]:
    """One row a kind of probe. Raises RuntimeError when a probe fails, for then it measured something else."""
    with subprocess.Popen([sys.executable, "-c", _SERVERS], stdout=subprocess.PIPE, text=True) as servers:
        try:
            if servers.stdout is None:
                raise RuntimeError("the servers of the benchmark printed nothing")
            http, echo, name = map(int, servers.stdout.readline().split())
            for health in _healths(http, echo, name):
                kind, check = health.probe.value, Check(health, _LOCAL)
                yield Row(f"{kind}: CPU of {_PROBES} probes", asyncio.run(_cost(check)), "s", 1.0)
            for kind, health in (("icmp", Health(ProbeKind.ICMP)), ("tcp", Health(ProbeKind.TCP, port=http))):
                cpu, failed = asyncio.run(_paced(health))
                yield Row(f"{kind}: CPU a second, {_PROBES} backends asked by the agent each second", cpu, "s", 1.0)
                yield Row(f"{kind}: of these probes failed though all backends answer", failed, "", 0)
        finally:
            servers.kill()


def _healths(http: int, echo: int, name: int) -> Iterator[Health]:
    yield Health(ProbeKind.ICMP)
    yield Health(ProbeKind.TCP, http)
    yield Health(ProbeKind.UDP, echo, send="ping", expect="ping")
    yield Health(ProbeKind.DNS, name, query="www.example")
    yield Health(ProbeKind.HTTP, http, body="ok")


async def _cost(check: Check) -> float:
    prober = Prober()
    started = time.process_time()
    for _ in range(_PROBES // _AT_ONCE):
        for result in await asyncio.gather(*(prober.probe(check, timeout_s=_TIMEOUT_S) for _ in range(_AT_ONCE))):
            if not result.ok:
                raise RuntimeError(result.reason)
    return time.process_time() - started


async def _paced(health: Health) -> tuple[float, int]:
    """CPU of the agent's asking for each second of it, and probes that failed."""
    backends = tuple(Backend(f"b{i}", Direct(Mac(i + 1), "p1"), Fraction(1), _LOCAL + i) for i in range(_PROBES))
    service = Service("all", Claim(frozenset({Family.IPV4})), backends, health=health)
    uplinks = Uplinks("br0", ("p0",), "p1", OtherTraffic.DROP)
    balancer, workers, answers = Balancer(uplinks, (service,)), BackgroundTasks(), list[bool]()
    store = StateStore(AgentState(balancer, balancer))
    scheduler = ProbeScheduler(Prober().probe, store, workers)
    store.subscribe(Probed, lambda probed: answers.append(probed.result.ok))
    store.dispatch(ConfigFollowed(balancer))
    workers.start(scheduler.run())
    # The first probes, a hundred at a time, are over then.
    await asyncio.sleep(2)
    started_cpu = time.process_time()
    await asyncio.sleep(_PACED_S)
    cpu_s = time.process_time() - started_cpu
    await workers.stop()
    return cpu_s / _PACED_S, answers.count(False)
