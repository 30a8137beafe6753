"""Probes: what servers and programs may answer, their deadlines, what they leave, and how many run at once."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from tests.patience import PATIENCE_S, eventually
from tests.probe_support import Talk, ask, nothing_left, tcp_server, udp_answers
from tests.processes import command_line
from tests.unit import balancer as small
from xenoovs.agent import scheduler as module
from xenoovs.agent.probe import run as probe_run
from xenoovs.agent.probe import tcp
from xenoovs.agent.probe.check import Check, ProbeResult, ResourceShortage
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.scheduler import ProbeScheduler, max_probes
from xenoovs.agent.state import AgentState, ConfigFollowed, Probed, step
from xenoovs.agent.state_store import StateStore
from xenoovs.agent.tasks import BackgroundTasks
from xenoovs.display import span
from xenoovs.log import LOGGER
from xenoovs.model.address import IPAddress
from xenoovs.model.balancer import Health, ProbeKind
from xenoovs.switch.process import run

LOCAL = ip_address("127.0.0.1")
BOTH_FAMILIES = pytest.mark.parametrize("address", [LOCAL, ip_address("::1")], ids=str)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def reply_with(data: bytes, *, after: bytes = b"\r\n\r\n", reset: bool = False, hold_s: float = 0) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(after)
        writer.write(data)
        await asyncio.sleep(hold_s)
        if reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    return talk


def check(probe: ProbeKind, port: int | None = None, address: IPAddress = LOCAL, **how: Any) -> Check:
    return Check(Health(probe, port, **how), address)


def get(
    talk: Talk,
    *,
    address: IPAddress = LOCAL,
    timeout_s: float = PATIENCE_S,
    server_tls: ssl.SSLContext | None = None,
    probe: ProbeKind | None = None,
    **how: Any,
) -> ProbeResult:
    """Probe a server that talks so."""

    async def once() -> ProbeResult:
        async with tcp_server(talk, host=str(address), tls=server_tls) as port:
            kind = probe or (ProbeKind.HTTPS if server_tls else ProbeKind.HTTP)
            return await Prober().probe(check(kind, port, address, **how), timeout_s=timeout_s)

    return asyncio.run(once())


@BOTH_FAMILIES
def test_answers(address: IPAddress) -> None:
    """A server sees a reset of a connection that was only opened."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.create_server((str(address), 0), family=family) as server:
        result = ask(check(ProbeKind.TCP, server.getsockname()[1], address))
        assert (result.ok, result.reason) == (True, "answered")
        connection, _ = server.accept()
        with connection, pytest.raises(ConnectionResetError):
            connection.recv(1)
    with udp_answers(lambda request: [request + b" pong"], host=str(address)) as port:
        assert ask(check(ProbeKind.UDP, port, address, send="ping", expect="pong")).ok
    assert get(reply_with(OK), address=address, body="ell").ok


@BOTH_FAMILIES
def test_refused(address: IPAddress) -> None:
    for probe in (ProbeKind.TCP, ProbeKind.UDP, ProbeKind.NONE):
        assert ask(check(probe, 1, address, send="ping")).reason == "connection refused"


def test_a_clock_that_jumps_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    jumping = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(time, "time", lambda: float(next(jumping)))
    result = get(reply_with(b"", hold_s=60), timeout_s=0.1)
    assert result.reason == "no answer within 100ms"
    assert 0.1 <= result.latency_s < 3600


def test_absent_device_and_namespace_are_named() -> None:
    assert ask(check(ProbeKind.TCP, 80, interface="nosuch0")).reason == "interface nosuch0 does not exist"
    assert ask(check(ProbeKind.TCP, 80, netns="nosuch")).reason == "network namespace nosuch does not exist"


def test_udp_answers_of_another_text_and_from_another_port() -> None:
    with udp_answers(lambda _: [b"\xffno"]) as port:
        wrong = ask(check(ProbeKind.UDP, port, send="ping", expect="pong"))
    assert wrong.reason == "answered '\\xffno', wanted 'pong' in it"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        result = ask(check(ProbeKind.UDP, silent.getsockname()[1], send="ping"), timeout_s=0.05)
    assert result.reason == "no answer within 50ms"


def test_bug_a_backend_that_flooded_a_dns_probe_stopped_all_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def flood(_: socket.socket) -> bytes:
        return bytes(12)

    monkeypatch.setattr(probe_run, "_next_datagram", flood)
    monkeypatch.setattr(probe_run, "_has_id", lambda *_: False)
    result = ask(check(ProbeKind.DNS, 53, query="example.org"), timeout_s=0.1)
    assert result.reason == "only answers to other queries within 100ms"


Change = Callable[[dns.message.Message], object]


def answer(change: Change) -> Callable[[bytes], list[bytes]]:
    def build(request: bytes) -> list[bytes]:
        message = dns.message.make_response(dns.message.from_wire(request))
        message.answer.append(dns.rrset.from_text("www.example.", 60, "IN", "A", "192.0.2.7"))
        change(message)
        return [message.to_wire()]

    return build


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda _: None, "answered"),
        (lambda m: m.set_rcode(dns.rcode.NXDOMAIN), "NXDOMAIN for www.example A"),
        (lambda m: m.set_rcode(dns.rcode.SERVFAIL), "SERVFAIL for www.example A"),
        (lambda m: setattr(m, "flags", m.flags | dns.flags.TC), "the answer for www.example A is truncated"),
        (lambda m: m.answer.clear(), "www.example A is without a record"),
    ],
)
def test_dns(change: Change, reason: str) -> None:
    with udp_answers(answer(change)) as port:
        result = ask(check(ProbeKind.DNS, port, query="www.example"))
    assert (result.ok, result.reason) == (reason == "answered", reason)


def test_dns_answers_to_other_queries_are_passed_over_and_garbage_is_none() -> None:
    good = answer(lambda _: None)

    def forged(request: bytes) -> bytes:
        return bytes([request[0] ^ 1]) + good(request)[0][1:]

    with udp_answers(lambda request: [forged(request), *good(request)]) as port:
        assert ask(check(ProbeKind.DNS, port, query="www.example")).ok
    with udp_answers(lambda request: [forged(request)]) as port:
        reason = ask(check(ProbeKind.DNS, port, query="www.example"), timeout_s=0.1).reason
    assert reason == "only answers to other queries within 100ms"
    with udp_answers(lambda request: [request[:2] + b"\xff" * 20]) as port:
        assert ask(check(ProbeKind.DNS, port, query="www.example")).reason.startswith("the answer is no DNS message")
    assert ask(check(ProbeKind.DNS, 53, query="a..b")).reason.startswith("the query cannot be asked")


HTTP = b"HTTP/1.1 200 OK\r\nContent-Length: "
WRONG: dict[str, tuple[Talk, str]] = {
    "status": (reply_with(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"), "status 503, wanted 200-399"),
    "body": (reply_with(HTTP + b"3\r\n\r\nbad"), "the body has no 'hello' in it: 'bad'"),
    "short body": (reply_with(HTTP + b"9\r\n\r\nbad"), "the body was cut short"),
    "nothing": (reply_with(b""), "connection closed before an answer"),
    "reset": (reply_with(b"", reset=True), "connection reset"),
    "half of a body": (reply_with(HTTP + b"9\r\n\r\nb", hold_s=60), "no complete body within 300ms"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers(name: str) -> None:
    talk, reason = WRONG[name]
    result = get(talk, body="hello", timeout_s=0.3 if "within" in reason else PATIENCE_S)
    assert (result.ok, result.reason) == (False, reason)
    assert get(reply_with(b"\x00\xffSSH-2.0\r\n\r\n")).reason.startswith("the answer is no HTTP")


@pytest.mark.parametrize("path", ["/health?a=%2F", "//192.0.2.9/", "//[::1", "/a//b"])
@pytest.mark.parametrize(("host", "sent"), [(None, "127.0.0.1:"), ("www.example", "www.example\r\n")])
def test_host_and_path_are_sent_as_given_and_no_path_names_another_server(
    path: str, host: str | None, sent: str
) -> None:
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    assert get(talk, path=path, host=host).ok
    assert seen[0].startswith(f"GET {path} HTTP/1.1\r\nHost: {sent}".encode())


class Authority:
    """A CA and the certificates that it signs, by openssl(1)."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.file = directory, str(directory / "ca.pem")
        self._openssl("req", "-x509", *self._subject("ca"), "-days", "2", "-out", self.file)

    def server(self, name: str, *, days: int = 2) -> ssl.SSLContext:
        """A context of a server with a certificate for an address or a name."""
        request, signed, extensions = (str(self.directory / f"{name}.{end}") for end in ("csr", "pem", "ext"))
        Path(extensions).write_text(f"subjectAltName={'IP' if name[0].isdigit() else 'DNS'}:{name}\n")
        self._openssl("req", *self._subject(name), "-out", request)
        authority = ("-CA", self.file, "-CAkey", str(self.directory / "ca.key"), "-CAcreateserial", "-days", str(days))
        self._openssl("x509", "-req", "-in", request, *authority, "-extfile", extensions, "-out", signed)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(signed, str(self.directory / f"{name}.key"))
        return context

    def _subject(self, name: str) -> tuple[str, ...]:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout")
        return (*key, str(self.directory / f"{name}.key"), "-subj", f"/CN={name}")

    def _openssl(self, *argv: str) -> None:
        run(["openssl", *argv])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.mark.parametrize(
    ("name", "days", "tls", "reason"),
    [
        ("127.0.0.1", 2, {}, "answered"),
        ("www.example", 2, {"server_name": "www.example"}, "answered"),
        ("www.example", 2, {"server_name": "api.example"}, "certificate for another name"),
        ("www.example", 2, {}, "certificate for another address"),
        ("127.0.0.1", -1, {}, "certificate expired"),
        ("127.0.0.1", -1, {"ca_file": None, "insecure": True}, "answered"),
        ("127.0.0.1", 2, {"ca_file": None}, "certificate from an authority that is not trusted"),
    ],
)
def test_certificates(authority: Authority, name: str, days: int, tls: dict[str, Any], reason: str) -> None:
    how = {"ca_file": authority.file, **tls}
    assert get(reply_with(OK), server_tls=authority.server(name, days=days), **how).reason == reason


def test_a_private_authority_of_plain_openssl_is_trusted_under_the_strict_defaults_of_python_3_13(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificates have no authority key identifier, which VERIFY_X509_STRICT requires."""
    make = ssl.create_default_context

    def strict(*, cafile: str | None) -> ssl.SSLContext:
        context = make(cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    server = authority.server("127.0.0.1")
    tcp._tls_context.cache_clear()
    assert get(reply_with(OK), server_tls=server, ca_file=authority.file).ok


def test_requests_by_tls_that_cannot_be_made(tmp_path: Path) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await reader.read()
        writer.close()

    empty, missing = tmp_path / "empty.pem", tmp_path / "no.pem"
    empty.touch()
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"insecure": True}, "TLS failed: wrong version number"),
        ({"ca_file": str(empty)}, f"{empty} holds no certificate in PEM form"),
        ({"ca_file": str(missing)}, f"{missing}: no such file or directory"),
        ({"insecure": True, "server_name": "x" * 64 + ".example"}, "the request cannot be made"),
    )
    for how, reason in cases:
        assert get(plain, probe=ProbeKind.HTTPS, **how).reason.startswith(reason)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n", b""], ids=str)
def test_the_agent_of_a_server_is_sent_a_line_and_replies_with_one(end: bytes) -> None:
    talk = reply_with(b"up 50%" + end, after=b"web\n", hold_s=2 * PATIENCE_S if end else 0)
    found = get(talk, probe=ProbeKind.NONE, send="web\n")
    assert (found.ok, found.reply) == (True, "up 50%")


REPLIES = {
    b"": "connection closed without a reply",
    b"x" * 5000: "no line end in the first 1024 bytes",
    b"\x1b[2J75%\n": "the reply is not printable ASCII",
    b"\xff\xfe\n": "the reply is not printable ASCII",
    b"75": "no whole line within 90ms",
}


@pytest.mark.parametrize("reply", REPLIES, ids=["nothing", "no line end", "control characters", "no ASCII", "half"])
def test_wrong_replies_of_an_agent(reply: bytes) -> None:
    is_held = "within" in REPLIES[reply]
    talk = reply_with(reply, after=b"\n", hold_s=60 if is_held else 0)
    found = get(talk, timeout_s=0.09 if is_held else PATIENCE_S, probe=ProbeKind.NONE, send="\n")
    assert (found.ok, found.reason.partition(":")[0]) == (False, REPLIES[reply])


KINDS = [kind for kind in ProbeKind if kind not in (ProbeKind.ICMP, ProbeKind.ARP)]
TURNS = (0, 1, 2, 3, 5, 8, 20, 200)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@asynccontextmanager
async def silent_one(kind: ProbeKind) -> AsyncIterator[Check]:
    """One that never answers."""
    with udp_answers(lambda _: []) as udp:
        async with tcp_server(silent) as tcp:
            port = udp if kind in (ProbeKind.UDP, ProbeKind.DNS) else tcp
            yield check(kind, port, send="a", query="www.example", insecure=True, command=("/bin/sleep", "60"))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_cancelled(kind: ProbeKind) -> None:
    async def main() -> None:
        async with silent_one(kind) as asked:
            for turns in TURNS:
                async with nothing_left():
                    probe = asyncio.create_task(Prober(exec_allowed=True).probe(asked, timeout_s=30))
                    for _ in range(turns):
                        await asyncio.sleep(0.0001)
                    probe.cancel()
                    await asyncio.wait([probe], timeout=PATIENCE_S)
                    assert probe.cancelled() or (kind is ProbeKind.TCP and probe.result().ok)

    asyncio.run(main())
    children = Path("/proc/thread-self/children").read_text().split()
    assert [pid for pid in children if b"sleep" in command_line(pid)] == []


def test_an_answer_that_lay_in_the_kernel_counts() -> None:
    async def main() -> None:
        async with nothing_left():
            prober = Prober()
            one = check(ProbeKind.UDP, port, send="a")
            probes = [asyncio.create_task(prober.probe(one, timeout_s=0.1)) for _ in range(50)]
            await asyncio.sleep(0.001)
            eventually(lambda: len(asked) == 50, "all requests are received")
            time.sleep(0.3)
            assert [probe.ok for probe in await asyncio.gather(*probes)] == [True] * 50

    def answer(request: bytes) -> list[bytes]:
        asked.append(request)
        return [request]

    asked: list[bytes] = []
    with udp_answers(answer) as port:
        asyncio.run(main())


def test_the_deadline_excludes_time_in_which_the_loop_was_blocked_and_silence_is_still_a_failure() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        writer.close()

    async def blocked(one: Check, timeout_s: float) -> ProbeResult:
        probe = asyncio.create_task(Prober().probe(one, timeout_s=timeout_s))
        await asyncio.sleep(0)
        time.sleep(1.5 * timeout_s)
        return await asyncio.wait_for(probe, PATIENCE_S)

    async def main(silent: int) -> None:
        async with tcp_server(answer) as port:
            assert (await blocked(check(ProbeKind.HTTP, port, body="ell"), 1)).ok
        assert (await blocked(check(ProbeKind.UDP, silent, send="a"), 0.2)).reason == "no answer within 200ms"

    with udp_answers(lambda _: []) as port:
        asyncio.run(main(port))


def test_off_until_allowed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for option in ("--allow-exec", "XENOOVS_ALLOW_EXEC=1"):
        result = ask(check(ProbeKind.EXEC, command=("touch", str(mark))), exec_option=option)
        assert (result.ok, mark.exists()) == (False, False)
        assert result.reason == f"touch was not run: the agent was started without {option}"
    assert ask(check(ProbeKind.EXEC, command=("touch", str(mark))), exec_allowed=True).ok
    assert mark.exists()


ENDS = {
    "raise SystemExit('no disk')": "ended with status 1: 'no disk'",
    "import os; os.kill(os.getpid(), 9)": "killed by SIGKILL",
    "import os; os.kill(os.getpid(), 40)": "killed by signal 40",
    "print('x' * 1_000_000)": "answered",  # Much output does not block.
    "": "/no/such: no such file or directory",
}


@pytest.mark.parametrize("code", ENDS)
def test_how_a_program_ends(code: str) -> None:
    found = ask(
        check(ProbeKind.EXEC, command=(sys.executable, "-c", code) if code else ("/no/such",)), exec_allowed=True
    )
    assert (found.ok, found.reason) == (ENDS[code] == "answered", ENDS[code])


def test_deadline_kills_the_children_too(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    target = check(ProbeKind.EXEC, command=("sh", "-c", f"sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"))
    # Until the deadline comes after the child, which on a busy machine may take its time.
    for timeout_s in (0.5, 4, 30):
        assert ask(target, timeout_s=timeout_s, exec_allowed=True).reason == f"sh did not end within {span(timeout_s)}"
        if pid.exists():
            break
    child = Path("/proc", pid.read_text().strip())
    eventually(lambda: not child.exists() or state_of(child) == "Z", "the end of the child")


def test_the_group_is_killed_before_its_leader_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that was reaped may be that of another process group by then."""
    states, kill = [], os.killpg

    def killpg(group: int, number: int) -> None:
        states.append(state_of(Path("/proc", str(group))) if Path("/proc", str(group)).exists() else "reaped")
        kill(group, number)

    monkeypatch.setattr(os, "killpg", killpg)
    assert ask(check(ProbeKind.EXEC, command=("true",)), exec_allowed=True).ok
    assert not ask(check(ProbeKind.EXEC, command=("sleep", "60")), timeout_s=0.2, exec_allowed=True).ok
    assert states[0] == "Z"
    assert "reaped" not in states


def test_bug_a_program_that_cannot_be_killed_left_its_backend_without_a_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that waits for a hung file system: its probe never ended, nor did the agent. No second one is started."""
    started, kill = list[int](), os.killpg
    monkeypatch.setattr(probe_run, "_KILL_S", 0.05)
    monkeypatch.setattr(os, "killpg", lambda group, _: started.append(group))
    target, prober = check(ProbeKind.EXEC, command=("sleep", "600")), Prober(exec_allowed=True)

    async def probed() -> str:
        return (await asyncio.wait_for(prober.probe(target, timeout_s=0.2), PATIENCE_S)).reason

    async def main() -> None:
        assert await probed() == "sleep did not end within 200ms"
        for _ in range(2):
            assert (await probed()).endswith("of an earlier probe cannot be killed: it may wait for a hung file system")
        (first,) = started
        kill(first, signal.SIGKILL)
        eventually(lambda: state_of(Path("/proc", str(first))) == "Z", "its end")
        monkeypatch.setattr(os, "killpg", kill)
        assert await probed() == "sleep did not end within 200ms"

    asyncio.run(main())


def state_of(process: Path) -> str:
    """`Z` for one that has ended (proc(5), /proc/pid/stat); also for one that ends during the read."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_the_program_gets_the_documented_variables_and_no_others_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s")
    code = "import os; raise SystemExit(' '.join(sorted(k for k in os.environ if k != 'LC_CTYPE')))"
    health = Health(ProbeKind.EXEC, command=(sys.executable, "-c", code))
    reason = ask(Check(health, environment=(("XENOOVS_ADDRESS", "192.0.2.1"),)), exec_allowed=True).reason
    assert reason == "ended with status 1: 'LC_ALL PATH XENOOVS_ADDRESS'"


BACKENDS = 20


class Scheduled:
    """A running scheduler, the state that it changes, and backends that answer unless this host is short of files."""

    def __init__(self, backends: int = BACKENDS, interval_ms: int = 50, max_running: int = sys.maxsize) -> None:
        health = Health(ProbeKind.TCP, 80, interval_ms=interval_ms, timeout_ms=interval_ms, jitter=Fraction(0))
        one = replace(small.service(small.claim(), *[1] * backends), health=health)
        addressed = tuple(replace(b, address=ip_address(f"198.51.100.{n}")) for n, b in enumerate(one.backends, 1))
        self.balancer = small.balancer(replace(one, backends=addressed))
        self.tasks, self.store = BackgroundTasks(), StateStore(AgentState(self.balancer, self.balancer))
        self.scheduler = ProbeScheduler(self.probe, self.store, self.tasks, max_running)
        self.is_short, self.calls, self.running, self.most = False, 0, 0, 0

    async def probe(self, check: Check, *, timeout_s: float) -> ProbeResult:
        self.calls += 1
        if self.is_short:
            raise ResourceShortage("too many open files")
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(timeout_s / 5)
        self.running -= 1
        return ProbeResult(ok=True, latency_s=0.0, reason="answered")

    def run(self, until: Callable[[], bool]) -> None:
        async def reach() -> None:
            self.tasks.start(self.scheduler.run())
            # Only now: new checks wake a scheduler that has nothing to do.
            await asyncio.sleep(0)
            self.store.dispatch(ConfigFollowed(self.balancer))
            end_s = time.monotonic() + PATIENCE_S
            while not until() and time.monotonic() < end_s:
                await asyncio.sleep(0.01)
            await self.tasks.stop()
            assert time.monotonic() < end_s

        asyncio.run(reach())


def test_an_interval_shorter_than_any_pause_is_met() -> None:
    """While the only probe is on its way nothing is due: its result sets the next time."""
    one = Scheduled(backends=1, interval_ms=5)
    one.run(lambda: one.calls >= 300)


@pytest.mark.parametrize("broken", ["step", "observe"])
def test_bug_a_check_whose_result_met_an_internal_error_was_never_probed_again(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """In the state, also with a failed result in place of this one; or in what only looks on."""
    one, failures = Scheduled(backends=1, interval_ms=5), iter(range(4))
    monkeypatch.setattr(module, "_RETRY_S", 0.01)

    def fail_at_first(*given: Any) -> Any:
        if any(isinstance(each, Probed) for each in given) and next(failures, None) is not None:
            raise ZeroDivisionError
        return step(*given)

    if broken == "step":
        monkeypatch.setattr("xenoovs.agent.state_store.step", fail_at_first)
    else:
        monkeypatch.setattr(one.store, "_observe", Mock(side_effect=ZeroDivisionError))
    one.run(lambda: one.calls >= 5)


def test_no_more_probes_run_than_there_are_descriptors_for() -> None:
    few = Scheduled(max_running=3)
    few.run(lambda: few.calls >= 5 * BACKENDS)
    assert few.most == 3
    assert few.store.state.tracker.is_settled


def test_a_shortage_of_this_host_is_no_failure_of_a_backend_and_lateness_is_logged_with_its_reason_and_its_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("_LATE_S", 0.3), ("_SUSTAINED_S", 0.3)):
        monkeypatch.setattr(module, name, seconds)
    caplog.set_level("INFO", LOGGER)
    short = Scheduled()
    short.is_short = True

    def is_over() -> bool:
        short.is_short = short.is_short and not short.scheduler.late_s
        return not short.is_short and not short.scheduler.late_s

    short.run(is_over)
    late, on_time = (record for record in caplog.records if record.name == LOGGER)
    assert (late.message, on_time.message) == ("health checks are late", "health checks are on time again")
    assert late.__dict__["facts"]["reason"] == "too many open files"
    health = short.store.state.tracker.health.values()
    assert {(each.is_up, each.transitions, each.failed_s) for each in health} == {(True, 0, ())}


@pytest.mark.parametrize(("descriptors", "probes"), [(1024, 768), (4096, 3840), (256, 16), (1 << 20, (1 << 20) - 256)])
def test_some_descriptors_are_reserved(descriptors: int, probes: int) -> None:
    assert max_probes(descriptors) == probes
