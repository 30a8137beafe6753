"""A steady stream from the clients of a lab: UDP packets at a steady pace, and who answered each of them.

The test's end is `steady_stream`. The other one is a program in the namespace of the clients, so that nothing of the
test slows it down: `python -m tests.ovs.paced ADDRESS PORT RATE CLIENT...`, packets a second of each client.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_network

from tests.patience import PATIENCE_S
from xenoovs.lab.client import Flight, UdpChannel
from xenoovs.lab.lab import Lab

VIP, PORT = "10.3.10.45", 53
LAST_ANSWERS_S, WHOLE_S, IN_A_ROW, AGAIN_S = 5.0, 60.0, 5, 1.0


@dataclass(frozen=True, slots=True)
class Stream:
    process: subprocess.Popen[str]

    def say(self, word: str) -> int:
        """Return, for `reached`, how many packets each client has sent; for `whole` the same, said when all of these
        have been answered or after a minute; for `again` the first of five packets in a row that all clients got
        answers to, sent since it was asked."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(word, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def end(self) -> dict[str, list[str | None]]:
        """Client -> the machine that answered each of its packets, None for one that was lost; none came twice."""
        told = json.loads(self.process.communicate(timeout=PATIENCE_S)[0])
        assert told["twice"] == 0
        answers: dict[str, list[str | None]] = told["answers"]
        return answers


@contextmanager
def steady_stream(lab: Lab, *, clients: int, rate_pps: int) -> Iterator[Stream]:
    """UDP to VIP and PORT, in an open loop: `rate_pps` of each client."""
    first = IPv4Address(ip_network(lab.topology.clients.nets[0])[10])
    argv = ["ip", "netns", "exec", lab.topology.clients.namespace, sys.executable, "-m", "tests.ovs.paced"]
    facts = [VIP, str(PORT), str(rate_pps), *(str(first + number) for number in range(clients))]
    process = subprocess.Popen([*argv, *facts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Stream(process)
    finally:
        process.kill()
        process.communicate()


class Sender:
    def __init__(self, address: str, port: int, clients: list[str]) -> None:
        self.channel, self.flight, self.clients = UdpChannel(), Flight("udp", address, port, tuple(clients)), clients
        self.reached, self.twice = 0, 0
        self.answers: dict[str, list[str | None]] = {client: [] for client in clients}

    def send(self) -> None:
        """One packet of each client. The key tells the client and its packet."""
        for number, client in enumerate(self.clients):
            self.answers[client].append(None)
            self.channel.send(self.reached * len(self.clients) + number, self.flight, client)
        self.reached += 1

    def receive(self) -> None:
        for key, client, who in self.channel.receive():
            number = key // len(self.clients)
            self.twice += self.answers[client][number] is not None
            self.answers[client][number] = who

    def is_whole(self, count: int, *, first: int = 0) -> bool:
        return self.reached >= count and all(None not in answers[first:count] for answers in self.answers.values())


def flow(sender: Sender, rate: int) -> None:
    """Send and answer until stdin ends."""
    begun_s = time.monotonic()
    whole: tuple[int, float] | None = None
    again: tuple[int, float] | None = None
    while True:
        wait_s = begun_s + sender.reached / rate - time.monotonic()
        if wait_s <= 0:
            sender.send()
            continue
        ready, _, _ = select.select([*sender.channel.sockets(), sys.stdin], [], [], wait_s)
        sender.receive()
        if sys.stdin in ready:
            match sys.stdin.readline().strip():
                case "reached":
                    print(sender.reached, flush=True)
                case "whole":
                    whole = sender.reached, time.monotonic() + WHOLE_S
                case "again":
                    again = sender.reached, time.monotonic() + AGAIN_S
                case "":
                    return
        if whole is not None and (sender.is_whole(whole[0]) or time.monotonic() > whole[1]):
            print(whole[0], flush=True)
            whole = None
        if again is not None and sender.is_whole(again[0] + IN_A_ROW, first=again[0]):
            print(again[0], flush=True)
            again = None
        elif again is not None and time.monotonic() > again[1]:
            again = sender.reached, time.monotonic() + AGAIN_S


def main(address: str, port: str, rate: str, *clients: str) -> None:
    """Send to the end of stdin, wait for what may still come, and print the answers."""
    sender = Sender(address, int(port), [*clients])
    flow(sender, int(rate))
    deadline = time.monotonic() + LAST_ANSWERS_S
    while not sender.is_whole(sender.reached) and time.monotonic() < deadline:
        select.select(sender.channel.sockets(), [], [], 0.05)
        sender.receive()
    print(json.dumps({"answers": sender.answers, "twice": sender.twice}))


if __name__ == "__main__":
    main(*sys.argv[1:])
