"""The program of the clients: `python -m scripts.demo_fleet.clients VIP PORT`, addresses and ports on stdin.

Each (address, port) asks again and again, all in turn, at a steady rate. A line for each packet and each answer goes to
stdout: `s NUMBER TIME CLIENT PORT`, `a NUMBER SERVER`; times are those of time.monotonic().
"""

from __future__ import annotations

import selectors
import socket
import struct
import sys
import time
from contextlib import suppress

from xenoovs.lab.sockets import allow_any_local

RATE = 240
"""Packets a second."""

_NUMBER = struct.Struct("!Q")


def main() -> None:
    vip, port = sys.argv[1], int(sys.argv[2])
    selector = selectors.DefaultSelector()
    flows = []
    for line in sys.stdin:
        client, source_port = line.split()
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        allow_any_local(sock)
        sock.bind((client, int(source_port)))
        sock.connect((vip, port))
        sock.settimeout(0)
        selector.register(sock, selectors.EVENT_READ)
        flows.append((sock, line.strip()))
    number = 0
    next_s = time.monotonic()
    while True:
        now_s = time.monotonic()
        if now_s >= next_s:
            sock, flow = flows[number % len(flows)]
            print(f"s {number} {now_s:.4f} {flow}")
            # An error of an earlier packet, such as an ICMP message, is that of a lost one.
            with suppress(OSError):
                sock.send(_NUMBER.pack(number))
            number += 1
            next_s = max(next_s + 1 / RATE, now_s - 1)
        for key, _ in selector.select(max(0.0, next_s - time.monotonic())):
            with suppress(OSError):
                answer = key.fileobj.recv(2048)  # type: ignore[union-attr]
                label = answer[_NUMBER.size :].split()[0].decode()
                print(f"a {_NUMBER.unpack_from(answer)[0]} {label}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
