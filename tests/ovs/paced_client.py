"""Clients for tests, in the namespace of the clients: UDP packets at a steady pace, and who answered each of them.

Arguments: address, port, number of clients, the address of the first (the others follow it), packets a second of each.
Lines on stdin: `reached` -> how many packets each client has sent; `whole` -> the same, said when all of these have
been answered or after ten seconds; `again` -> the first of five packets in a row that all clients got answers to, sent
since it was asked. At the end of stdin it waits for what may still come and prints JSON: `answers`,
client -> the answers in the order in which the packets were sent, each the label of the machine or null; `twice`, the
number of answers to a packet that already had one.
"""

from __future__ import annotations

import json
import select
import sys
import time
from ipaddress import IPv4Address

from xenoovs.lab.client import Flight, UdpChannel

LAST_ANSWERS_S, WHOLE_S, IN_A_ROW, AGAIN_S = 5.0, 60.0, 5, 1.0


class Stream:
    def __init__(self, flight: Flight, clients: list[str]) -> None:
        self.channel, self.flight, self.clients = UdpChannel(), flight, clients
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


def flow(stream: Stream, rate: int) -> None:
    """Send and answer until stdin ends."""
    begun_s = time.monotonic()
    whole: tuple[int, float] | None = None
    again: tuple[int, float] | None = None
    while True:
        wait_s = begun_s + stream.reached / rate - time.monotonic()
        if wait_s <= 0:
            stream.send()
            continue
        ready, _, _ = select.select([*stream.channel.sockets(), sys.stdin], [], [], wait_s)
        stream.receive()
        if sys.stdin in ready:
            match sys.stdin.readline().strip():
                case "reached":
                    print(stream.reached, flush=True)
                case "whole":
                    whole = stream.reached, time.monotonic() + WHOLE_S
                case "again":
                    again = stream.reached, time.monotonic() + AGAIN_S
                case "":
                    return
        if whole is not None and (stream.is_whole(whole[0]) or time.monotonic() > whole[1]):
            print(whole[0], flush=True)
            whole = None
        if again is not None and stream.is_whole(again[0] + IN_A_ROW, first=again[0]):
            print(again[0], flush=True)
            again = None
        elif again is not None and time.monotonic() > again[1]:
            again = stream.reached, time.monotonic() + AGAIN_S


def main() -> None:
    address, port, count, first, rate = sys.argv[1:]
    clients = [str(IPv4Address(first) + number) for number in range(int(count))]
    stream = Stream(Flight("udp", address, int(port), tuple(clients)), clients)
    flow(stream, int(rate))
    deadline = time.monotonic() + LAST_ANSWERS_S
    while not stream.is_whole(stream.reached) and time.monotonic() < deadline:
        select.select(stream.channel.sockets(), [], [], 0.05)
        stream.receive()
    print(json.dumps({"answers": stream.answers, "twice": stream.twice}))


if __name__ == "__main__":
    main()
