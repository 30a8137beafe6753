"""Sends UDP packets of a size to a VIP, each with a small one behind it, and prints how many clients' were answered."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress

from tests.patience import PATIENCE_S
from xenoovs.lab.sockets import from_address, udp_socket

IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2  # linux/in.h: nothing is fragmented
HEADERS = 28


def main(vip: str, size: int, clients: list[str]) -> None:
    sock, answered = udp_socket(socket.AF_INET), set[bytes]()
    sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    # In the first round Open vSwitch has no megaflow yet, and keeps no order. A packet that does not fit takes others
    # of its batch with it (netdev_linux_send() of lib/netdev-linux.c): the small ones are sent until they are answered.
    for number in range(3):
        small = {f"{number}/{client}".encode(): client for client in clients}
        for client in clients:
            send(sock, client, f"large/{client} ".encode().ljust(size - HEADERS), vip)
        end = time.monotonic() + PATIENCE_S
        while (missing := small.keys() - answered) and time.monotonic() < end:
            for word in missing:
                send(sock, small[word], word + b" ", vip)
            time.sleep(0.05)
            with suppress(BlockingIOError):
                while True:
                    answered.add(sock.recv(100).split()[0])
        assert not missing, missing
    print(sum(each.startswith(b"large") for each in answered))


def send(sock: socket.socket, client: str, data: bytes, vip: str) -> None:
    sock.sendmsg([data], from_address(socket.inet_aton(client)), 0, (vip, 53))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
