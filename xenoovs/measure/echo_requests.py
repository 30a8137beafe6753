"""The program that measures round trips: sends DNS requests at a steady rate, with the kernel's time stamps.

Its source is sent to the client's machine (`python3 -I -c SOURCE`), so it needs Python 3.7 and Linux. It reads a line
of JSON: {"vip": "...", "port": 53, "sources": ["..."], "requests": 200, "pps": 100.0, "after_s": 1.0}. It prints a line
of JSON: {"sent": 200, "rtt_us": [...], "timestamps": "kernel", "clock_jump_s": 0.0, "error": "..."}.

Time stamps are those of SO_TIMESTAMPING (Documentation/networking/timestamping.rst of the kernel): of the NIC if it
makes them, otherwise of the kernel, when it passes a packet to the device or gets it from there.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from typing import Any

SO_TIMESTAMPING = 37
"""asm-generic/socket.h."""
SOF_TX_HARDWARE, SOF_TX_SOFTWARE, SOF_RX_HARDWARE, SOF_RX_SOFTWARE, SOF_SOFTWARE = 1, 2, 4, 8, 16
SOF_RAW_HARDWARE, SOF_OPT_ID, SOF_OPT_TSONLY = 64, 128, 2048
"""linux/net_tstamp.h."""
FLAGS = (
    SOF_TX_HARDWARE
    | SOF_TX_SOFTWARE
    | SOF_RX_HARDWARE
    | SOF_RX_SOFTWARE
    | SOF_SOFTWARE
    | SOF_RAW_HARDWARE
    | SOF_OPT_ID
    | SOF_OPT_TSONLY
)
IP_RECVERR, IPV6_RECVERR = 11, 25
SCM_TIMESTAMPING = SO_TIMESTAMPING
STAMPS = struct.Struct("@6q")
EXTENDED_ERROR = struct.Struct("@IBBBBII")
"""struct sock_extended_err of linux/errqueue.h; its last number is the id of the packet."""

LINGER_S = 1.0
QUESTION = b"\x07example\x03com\x00\x00\x01\x00\x01"
DNS_ID_VALUES = 1 << 16


class EchoClient:
    """Sends requests from several addresses in turn, and matches answers by their DNS id."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.family = socket.AF_INET6 if ":" in job["vip"] else socket.AF_INET
        self.sockets = [self.open(source) for source in job["sources"]]
        self.numbers = {each.fileno(): number for number, each in enumerate(self.sockets)}
        count = job["requests"]
        self.sent_at: list[dict[str, int]] = [{} for _ in range(count)]
        self.received_at: list[dict[str, int]] = [{} for _ in range(count)]
        self.sent = 0

    def open(self, source: str) -> socket.socket:
        sock = socket.socket(self.family, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, FLAGS)
        sock.bind((source, 0))
        sock.connect((self.job["vip"], self.job["port"]))
        sock.settimeout(0.0)
        return sock

    def run(self) -> dict[str, Any]:
        time.sleep(self.job["after_s"])
        clock = time.time() - time.monotonic()
        begun, count = time.monotonic(), self.job["requests"]
        poll = select.poll()
        for sock in self.sockets:
            poll.register(sock, select.POLLIN)
        error = ""
        while self.sent < count:
            due = begun + self.sent / self.job["pps"]
            left = due - time.monotonic()
            if left <= 0:
                try:
                    self.send(self.sent)
                except OSError as refused:
                    error = refused.strerror or str(refused)
                self.sent += 1
                continue
            self.receive(poll, left)
        end = time.monotonic() + LINGER_S
        while time.monotonic() < end and not all(self.received_at):
            self.receive(poll, end - time.monotonic())
        rtt_us, kind = self.round_trips()
        jump = time.time() - time.monotonic() - clock
        return {"sent": self.sent, "rtt_us": rtt_us, "timestamps": kind, "clock_jump_s": jump, "error": error}

    def send(self, number: int) -> None:
        # A query for example.com with recursion desired (RFC 1035, section 4.1), which servers and echoes answer.
        request = struct.pack("!HHHHHH", number % DNS_ID_VALUES, 0x0100, 1, 0, 0, 0) + QUESTION
        self.sent_at[number]["program"] = time.monotonic_ns()
        self.sockets[number % len(self.sockets)].send(request)

    def receive(self, poll: Any, timeout_s: float) -> None:
        for descriptor, events in poll.poll(max(0.0, timeout_s * 1000)):
            sock = self.sockets[self.numbers[descriptor]]
            if events & select.POLLERR:
                self.read_sent(sock, self.numbers[descriptor])
            if events & select.POLLIN:
                self.read_answer(sock)

    def read_sent(self, sock: socket.socket, first: int) -> None:
        """Read the kernel's send times of requests. The id counts the packets of a socket."""
        try:
            _, control, _, _ = sock.recvmsg(0, 512, socket.MSG_ERRQUEUE)
        except OSError:
            # An ICMP error, such as a closed port.
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            return
        number = None
        for level, kind, data in control:
            if (level, kind) in ((socket.IPPROTO_IP, IP_RECVERR), (socket.IPPROTO_IPV6, IPV6_RECVERR)):
                number = first + EXTENDED_ERROR.unpack_from(data)[6] * len(self.sockets)
        if number is not None and number < len(self.sent_at):
            self.sent_at[number].update(stamps(control))

    def read_answer(self, sock: socket.socket) -> None:
        try:
            data, control, _, _ = sock.recvmsg(2048, 512)
        except OSError:
            return
        now = time.monotonic_ns()
        if len(data) < 2:
            return
        number = self.sent - 1 - (self.sent - 1 - struct.unpack_from("!H", data)[0]) % DNS_ID_VALUES
        if 0 <= number < self.sent and not self.received_at[number]:
            self.received_at[number] = dict(stamps(control), program=now)

    def round_trips(self) -> tuple[list[float], str]:
        """Return the round-trip times by the best clock that all answers have, and its name."""
        pairs = [(sent, got) for sent, got in zip(self.sent_at, self.received_at) if got]  # noqa: B905 (of Python 3.10)
        for kind in ("hardware", "kernel"):
            if pairs and all(kind in sent and kind in got for sent, got in pairs):
                break
        else:
            kind = "program"
        return [(got[kind] - sent[kind]) / 1000 for sent, got in pairs if kind in sent], kind


def stamps(control: Any) -> dict[str, int]:
    """Return the kernel's and the hardware's times in the control data of a message, in ns."""
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, SCM_TIMESTAMPING):
            numbers = STAMPS.unpack_from(data)
            found = {"kernel": numbers[0:2], "hardware": numbers[4:6]}
            return {name: s * 10**9 + ns for name, (s, ns) in found.items() if s or ns}
    return {}


def main() -> None:
    job = json.loads(sys.stdin.readline())
    try:
        print(json.dumps(EchoClient(job).run()), flush=True)
    except OSError as error:
        print(json.dumps({"error": error.strerror or str(error)}), flush=True)


if __name__ == "__main__":
    main()
