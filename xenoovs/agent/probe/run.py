"""Runs a probe of any kind within a deadline. A failed probe has a result, and raises no exception."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype

from xenoovs.agent.probe.check import Check, Expectation, ProbeResult, ResourceShortage, failure_reason, quoted
from xenoovs.agent.probe.icmp import ArpChannel, IcmpChannel, probe_arp, probe_icmp
from xenoovs.agent.probe.sockets import ChannelPool, host_of, namespace_inode, namespace_path, open_socket
from xenoovs.agent.probe.tcp import ask_agent, probe_http, probe_tcp
from xenoovs.agent.tasks import Overdue, within
from xenoovs.display import span
from xenoovs.errors import assert_never
from xenoovs.model.balancer import ProbeKind
from xenoovs.switch.process import killed_with_this_process, start

# Programs are run with a list of arguments, never by a shell, and without input. At the end their group is killed.


_MAX_OUTPUT_BYTES = 4096
_KILL_S = 1.0
"""How long a killed program may take to end. One that waits for a hung file system ends much later, or never."""


async def probe_exec(check: Check, unkilled: dict[Check, subprocess.Popen[bytes]]) -> str | None:
    """Return why the program failed; None for status 0. Raises OSError if the program or namespace does not exist.
    `unkilled`: programs of earlier probes that did not end when they were killed. They must not become ever more."""
    if (before := unkilled.get(check)) is not None and before.poll() is None:
        return f"process {before.pid} of an earlier probe cannot be killed: it may wait for a hung file system"
    netns = check.health.netns
    namespace_inode(netns)
    # The environment of the agent may contain secrets, so the program inherits only PATH.
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **dict(check.environment)}
    enter = [] if netns is None else ["nsenter", f"--net={namespace_path(netns)}", "--"]
    output = _Output()
    try:
        with killed_with_this_process(output.writer.fileno()):
            with output.writer as writer:
                process = start([*enter, *check.health.command], output=writer.fileno(), env=env)
            try:
                with _exit_event(process.pid) as exited:
                    try:
                        await exited.wait()
                    finally:
                        # Killed before the leader is reaped, after which its number may belong to another group.
                        _kill_group(process.pid)
                        with suppress(Overdue):
                            await within(_KILL_S, exited.wait())
                        if process.poll() is None:
                            unkilled[check] = process
                status = process.wait()
            except OSError:
                _kill_group(process.pid)
                process.wait()
                raise
            output.drain()
    except BlockingIOError as error:
        raise ResourceShortage("too many processes on this host") from error
    finally:
        output.close()
    return None if status == 0 else _exit_reason(status, output.first_line())


@contextmanager
def _exit_event(pid: int) -> Iterator[asyncio.Event]:
    """Yield an event that is set when a child has exited and is not reaped yet."""
    loop, exited, descriptor = asyncio.get_running_loop(), asyncio.Event(), os.pidfd_open(pid)
    loop.add_reader(descriptor, exited.set)
    try:
        yield exited
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _exit_reason(status: int, output: bytes) -> str:
    ended = f"ended with status {status}" if status > 0 else f"killed by {_signal_name(-status)}"
    return f"{ended}: {quoted(output, most=100)}" if output else ended


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Most real-time signals have no name (signal(7)).
        return f"signal {number}"


class _Output:
    """A pipe for the output of a program, read at once so that the program never blocks. Stores the first bytes."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(writer, True)
        self.writer = os.fdopen(writer, "wb", buffering=0)
        self._beginning = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._read)

    def first_line(self) -> bytes:
        return bytes(self._beginning).strip().split(b"\n")[0]

    def drain(self) -> None:
        """Read all available output, without waiting."""
        while self._read():
            pass

    def close(self) -> None:
        self.writer.close()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)

    def _read(self) -> bool:
        try:
            data = os.read(self._reader, 65536)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._reader)
        self._beginning += data[: _MAX_OUTPUT_BYTES - len(self._beginning)]
        return bool(data)


class Prober:
    """Runs probes that share sockets, in one event loop. The last probe closes the shared sockets."""

    def __init__(self, *, exec_allowed: bool = False, exec_option: str = "--allow-exec") -> None:
        """`exec_allowed`: run the programs of exec probes; otherwise these fail. `exec_option`: what allows them."""
        self._exec_allowed, self._exec_option = exec_allowed, exec_option
        self._icmp: ChannelPool[IcmpChannel] = ChannelPool()
        self._arp: ChannelPool[ArpChannel] = ChannelPool()
        self._unkilled: dict[Check, subprocess.Popen[bytes]] = {}

    async def probe(self, check: Check, *, timeout_s: float) -> ProbeResult:
        """Probe a backend once. `timeout_s`: of the whole probe. Raises ResourceShortage if this host could not send
        it."""
        clock = asyncio.get_running_loop().time
        started_s = clock()
        expectation = Expectation()
        try:
            failure = await within(timeout_s, self._run(check, expectation))
        except Overdue:
            failure = f"{expectation.missing} within {span(timeout_s)}"
        except OSError as error:
            failure = failure_reason(error)
        return ProbeResult(failure is None, clock() - started_s, failure or "answered", expectation.reply)

    async def _run(self, check: Check, expectation: Expectation) -> str | None:
        match check.health.probe:
            case ProbeKind.ICMP:
                return await probe_icmp(check, self._icmp)
            case ProbeKind.ARP:
                await probe_arp(check, expectation, self._arp)
                return None
            case ProbeKind.TCP:
                return await probe_tcp(check)
            case ProbeKind.NONE:
                return await ask_agent(check, expectation)
            case ProbeKind.UDP:
                return await probe_udp(check)
            case ProbeKind.DNS:
                return await probe_dns(check, expectation)
            case ProbeKind.HTTP | ProbeKind.HTTPS:
                return await probe_http(check, expectation)
            case ProbeKind.EXEC:
                program = check.health.command[0]
                if not self._exec_allowed:
                    return f"{program} was not run: the agent was started without {self._exec_option}"
                expectation.await_part(f"{program} did not end")
                return await probe_exec(check, self._unkilled)
            case _:
                assert_never(check.health.probe)


# UDP and DNS probes: a target answers a datagram or a DNS query.


_MAX_DATAGRAM_BYTES = 65535


async def probe_udp(check: Check) -> str | None:
    """Return why the backend failed; None if it answered. Raises OSError; an ICMP error is ECONNREFUSED."""
    expected = check.health.expect.encode()
    with _connected(check) as sock:
        sock.send(check.health.send.encode())
        answer = await _next_datagram(sock)
    return None if expected in answer else f"answered {quoted(answer)}, wanted {quoted(expected)} in it"


@contextmanager
def _connected(check: Check) -> Iterator[socket.socket]:
    with open_socket(check.address, socket.SOCK_DGRAM, check.health.interface, check.health.netns) as sock:
        sock.connect((host_of(check.address), check.health.port))
        yield sock


async def _next_datagram(sock: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(sock, _MAX_DATAGRAM_BYTES)


# DNS: RFC 1035, with EDNS of RFC 6891. Answers with another id are ignored.


_PAYLOAD_BYTES = 1232
"""Largest answer that a query allows: it fits any path without fragments (DNS Flag Day 2020)."""

_HEADER_BYTES = 12
"""Size of a DNS header (RFC 1035, section 4.1.1)."""


async def probe_dns(check: Check, expectation: Expectation) -> str | None:
    """Return why the backend failed; None if it answered. Raises OSError like probe_udp."""
    try:
        query = dns.message.make_query(check.health.query, "A", use_edns=0, payload=_PAYLOAD_BYTES)
    except dns.exception.DNSException as error:
        return f"the query cannot be asked: {error}"
    with _connected(check) as sock:
        sock.send(query.to_wire())
        while not _has_id(data := await _next_datagram(sock), query.id):
            expectation.await_part("only answers to other queries")
            # A datagram that is there already is read at once, without a turn of the event loop.
            await asyncio.sleep(0)
    return _failure(query, data)


def _has_id(data: bytes, query_id: int) -> bool:
    return len(data) < _HEADER_BYTES or int.from_bytes(data[:2], "big") == query_id


def _failure(query: dns.message.Message, data: bytes) -> str | None:
    try:
        answer = dns.message.from_wire(data, ignore_trailing=True, raise_on_truncation=False)
    except (dns.exception.DNSException, ValueError):
        return f"the answer is no DNS message: {quoted(data)}"
    if not query.is_response(answer) and answer.rcode() == dns.rcode.NOERROR:
        return "the answer is to another question"
    question = f"{query.question[0].name.to_text(omit_final_dot=True)} A"
    if answer.rcode() != dns.rcode.NOERROR:
        return f"{dns.rcode.to_text(answer.rcode())} for {question}"
    if answer.flags & dns.flags.TC:
        return f"the answer for {question} is truncated"
    if not any(group.rdtype == dns.rdatatype.A for group in answer.answer):
        return f"{question} is without a record"
    return None
