"""Runs probes: any target, one hard deadline, one result. A probe that fails is a result and never an exception."""

from __future__ import annotations

import asyncio
from typing import assert_never

from xenoovs.agent.probe.all_nodes import probe_all_nodes
from xenoovs.agent.probe.arp import ArpChannel, probe_arp
from xenoovs.agent.probe.deadline import Deadline
from xenoovs.agent.probe.dns import probe_dns
from xenoovs.agent.probe.http import TlsContexts, probe_http
from xenoovs.agent.probe.icmp import IcmpChannel, probe_icmp
from xenoovs.agent.probe.result import ProbeResult, Waiting, reason_of
from xenoovs.agent.probe.run_exec import probe_exec
from xenoovs.agent.probe.shared import Shared
from xenoovs.agent.probe.target import (
    ArpTarget,
    DnsTarget,
    ExecTarget,
    HttpTarget,
    IcmpTarget,
    Target,
    TcpTarget,
    UdpTarget,
)
from xenoovs.agent.probe.tcp import probe_tcp
from xenoovs.agent.probe.udp import probe_udp


class Prober:
    """Probes that share sockets and TLS contexts, within one event loop. Nothing to close: the last probe closes all.

    exec_allowed: whether programs may be run; off, a probe by a program fails and says so.
    """

    def __init__(self, *, exec_allowed: bool = False) -> None:
        self._exec_allowed = exec_allowed
        self._icmp: Shared[IcmpChannel] = Shared()
        self._arp: Shared[ArpChannel] = Shared()
        self._tls = TlsContexts()

    async def probe(self, target: Target, *, timeout_s: float) -> ProbeResult:
        """Ask once. timeout_s: for all of it, on the monotonic clock. Raises CancelledError alone, when cancelled."""
        clock = asyncio.get_running_loop().time
        started = clock()
        waiting = Waiting()
        try:
            async with Deadline(timeout_s) as deadline:
                fault = await self._ask(target, waiting)
        except OSError as error:
            overdue = isinstance(error, TimeoutError) and deadline.is_over
            fault = waiting.overdue(timeout_s) if overdue else reason_of(error)
        return ProbeResult(fault is None, clock() - started, fault or "answered")

    async def _ask(self, target: Target, waiting: Waiting) -> str | None:
        match target:
            case IcmpTarget():
                return await probe_icmp(target, self._icmp)
            case ArpTarget(address=None):
                return await probe_all_nodes(target, self._icmp)
            case ArpTarget():
                await probe_arp(target, waiting, self._arp)
                return None
            case TcpTarget():
                return await probe_tcp(target)
            case UdpTarget():
                return await probe_udp(target)
            case DnsTarget():
                return await probe_dns(target, waiting)
            case HttpTarget():
                return await probe_http(target, waiting, self._tls)
            case ExecTarget():
                return await self._run(target, waiting)
            case _:
                assert_never(target)

    async def _run(self, target: ExecTarget, waiting: Waiting) -> str | None:
        if not self._exec_allowed:
            return f"{target.argv[0]} was not run: the agent was started without --allow-exec"
        waiting.missing = f"{target.argv[0]} did not end"
        return await probe_exec(target)


async def probe(target: Target, *, timeout_s: float, exec_allowed: bool = False) -> ProbeResult:
    """One probe on its own; many belong to one Prober, which shares sockets between them."""
    return await Prober(exec_allowed=exec_allowed).probe(target, timeout_s=timeout_s)
