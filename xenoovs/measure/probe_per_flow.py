"""The published algorithm of DOCA-AR, for comparison: each new flow probes all paths and keeps the fastest.

It runs on a DPU as `python -m xenoovs.measure.probe_per_flow`, with a job as JSON on stdin. It does what the README and
the source of DOCA-AR describe, with Open vSwitch in place of DOCA Flow:

- The first packet of a flow, that is of an outer source port, waits here. Four probes go out whose headers are those
  of the flow but for the source port, which is port, port+1, port+2, port+3, and the TOS, 0x20.
- The probe that comes back first has the least round-trip time. A flow is installed which writes its source port, and
  what has waited is sent. After 50 ms without an answer the flow keeps its port.
- A flow stays until it was idle for 10 s. Nothing measures its path again.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

from xenoovs.model.address import checksum
from xenoovs.openflow.flow import Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.flow import encode_flow_mod
from xenoovs.switch.endpoint import find_endpoint
from xenoovs.switch.openflow import Connection, connected, request_barrier

PATHS, TIMEOUT_S, IDLE_S = 4, 0.05, 10
"""PROBE_PATH_AMOUNT, PROBE_TIMEOUT and EXPIRE_TIME of DOCA-AR."""
PROBE_TOS, PROBE_PORT, ANSWER_PORT = 0x20, 4789, 4788
FLOW_PRIORITY = 2000

_ETHERNET, _IPV4, _UDP = 14, 20, 8
_HEADERS = _ETHERNET + _IPV4 + _UDP
_IPV4_FRAMES = 0x0800
"""ETH_P_IP of linux/if_ether.h."""
_PAYLOAD = struct.Struct("!QIHH")
"""Time stamp, source port of the flow, number of the path, and zeros."""
_LARGEST_BYTES = 4096


@dataclass(slots=True)
class WaitingFlow:
    """A flow without a path yet. `frames`: Its packets so far."""

    deadline_s: float
    frames: list[bytes] = field(default_factory=list)


class PathChooser:
    def __init__(self, sock: socket.socket, connection: Connection, job: dict[str, str]) -> None:
        self.sock, self.connection, self.job = sock, connection, job
        self.waiting: dict[tuple[bytes, int], WaitingFlow] = {}
        self.chosen: dict[tuple[bytes, int], int] = {}
        self.probes = self.timeouts = 0

    def run(self) -> None:
        """Serve until stdin ends. Prints "ready" first, and a line of JSON with the counts last."""
        self.sock.settimeout(0.0)
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            selector.register(sys.stdin, selectors.EVENT_READ)
            print("ready", flush=True)
            while True:
                for key, _ in selector.select(self.timeout_s()):
                    if key.fileobj is sys.stdin:
                        counts = {"flows": len(self.chosen), "probes": self.probes, "timeouts": self.timeouts}
                        print(json.dumps(counts), flush=True)
                        return
                    self.receive()
                self.expire()

    def timeout_s(self) -> float | None:
        if not self.waiting:
            return None
        return max(0.0, min(flow.deadline_s for flow in self.waiting.values()) - time.monotonic())

    def receive(self) -> None:
        with suppress(BlockingIOError, InterruptedError):
            while True:
                frame, (_, _, kind, *_) = self.sock.recvfrom(_LARGEST_BYTES)
                if kind != socket.PACKET_OUTGOING and len(frame) >= _HEADERS and frame[12:14] == b"\x08\x00":
                    self.take(frame)

    def take(self, frame: bytes) -> None:
        source, target = struct.unpack_from("!HH", frame, _ETHERNET + _IPV4)
        if target == ANSWER_PORT:
            _, flow, path, _ = _PAYLOAD.unpack_from(frame, _HEADERS)
            # The source address is the probe's destination: the reflector is the remote end of the tunnel.
            self.choose((frame[26:30], flow), path)
        elif target == PROBE_PORT:
            key = (frame[30:34], source)
            if key in self.chosen:
                # The packet arrived while the flow was being installed.
                self.sock.send(with_source_port(frame, self.chosen[key]))
                return
            flow = self.waiting.get(key)
            if flow is None:
                flow = self.waiting[key] = WaitingFlow(time.monotonic() + TIMEOUT_S)
                self.probe(frame, source)
            flow.frames.append(frame)

    def probe(self, frame: bytes, source: int) -> None:
        for path in range(PATHS):
            payload = _PAYLOAD.pack(time.monotonic_ns(), source, path, 0)
            self.sock.send(probe_like(frame, (source + path) & 0xFFFF, payload))
            self.probes += 1

    def expire(self) -> None:
        now_s = time.monotonic()
        for key in [key for key, flow in self.waiting.items() if flow.deadline_s <= now_s]:
            self.timeouts += 1
            self.choose(key, 0)

    def choose(self, key: tuple[bytes, int], path: int) -> None:
        flow = self.waiting.pop(key, None)
        if flow is None or not 0 <= path < PATHS:
            return
        port = self.chosen[key] = (key[1] + path) & 0xFFFF
        self.install(key, port)
        for frame in flow.frames:
            self.sock.send(with_source_port(frame, port))

    def install(self, key: tuple[bytes, int], port: int) -> None:
        remote, source = socket.inet_ntoa(key[0]), key[1]
        text = (
            f"idle_timeout={IDLE_S}, priority={FLOW_PRIORITY},udp,in_port={self.job['host_port']},nw_dst={remote},"
            f"tp_src={source},tp_dst={PROBE_PORT} actions=mod_tp_src:{port},output:{self.job['uplink']}"
        )
        mod = FlowMod(Command.ADD, parse_flow(text))
        connection = self.connection
        connection.send(encode_flow_mod(mod, xid=connection.take_xids(1), ofports=connection.numbers))


def probe_like(frame: bytes, source: int, payload: bytes) -> bytes:
    """Return a probe with the headers of a frame, except source port, TOS and lengths."""
    length = _UDP + len(payload)
    ip = bytearray(frame[_ETHERNET : _ETHERNET + _IPV4])
    ip[1] = PROBE_TOS
    struct.pack_into("!H", ip, 2, _IPV4 + length)
    # The UDP checksum may be 0 over IPv4 (RFC 768), as it is in VXLAN by default (RFC 7348, section 5).
    struct.pack_into("!H", ip, 10, 0)
    struct.pack_into("!H", ip, 10, checksum(ip))
    return frame[:_ETHERNET] + bytes(ip) + struct.pack("!HHHH", source, PROBE_PORT, length, 0) + payload


def with_source_port(frame: bytes, port: int) -> bytes:
    """Return a frame with another UDP source port and an updated checksum (RFC 1624, equation 3)."""
    changed = bytearray(frame)
    before, _, _, checksum = struct.unpack_from("!HHHH", frame, _ETHERNET + _IPV4)
    struct.pack_into("!H", changed, _ETHERNET + _IPV4, port)
    if checksum:
        total = (~checksum & 0xFFFF) + (~before & 0xFFFF) + port
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into("!H", changed, _ETHERNET + _IPV4 + 6, (~total & 0xFFFF) or 0xFFFF)
    return bytes(changed)


def main() -> None:
    job = json.loads(sys.stdin.readline())
    endpoint = find_endpoint(db=None, env=os.environ)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock, connected(endpoint, job["bridge"]) as connection:
        sock.bind((job["port"], _IPV4_FRAMES))
        connection.numbers  # noqa: B018 - asked now, as the first flow must not wait for it
        request_barrier(connection)
        PathChooser(sock, connection, job).run()


if __name__ == "__main__":
    main()
