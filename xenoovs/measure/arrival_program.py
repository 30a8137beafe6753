"""The program that sends single frames and measures when they arrive. Its source is sent to the machine.

    SENDER-NETNS SENDER-INTERFACE (NETNS INTERFACE)...      frames in hexadecimal on stdin, one a line

It prints a JSON list: for each frame microseconds until it arrived at one of the interfaces, or null for a lost one. A
frame is known by its source address and its ports. Sender and receivers are one machine, and so share a clock.
"""

import ctypes
import json
import os
import select
import socket
import struct
import sys
import time

CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3
SO_TIMESTAMPNS = 35
"""The kernel notes when a packet was received (socket(7); SCM_TIMESTAMPNS has the same number)."""
TIMEOUT_S = 0.5
LARGEST = 2048
PAUSE_S = 0.002


def enter(netns):  # type: (str) -> None
    with open("/run/netns/" + netns) as stream:  # noqa: PTH123 - as short as the rest of the program
        if ctypes.CDLL(None, use_errno=True).setns(stream.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def packet_socket(netns, interface):  # type: (str, str) -> socket.socket
    enter(netns)
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.bind((interface, 0))
    opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return opened


def addresses(frame):  # type: (bytes) -> bytes
    """Return source address and ports; NAT may change the destination."""
    if frame[12:14] == b"\x86\xdd":
        return frame[22:38] + frame[54:58]
    return frame[26:30] + frame[34:38]


def drain(receivers):  # type: (list[socket.socket]) -> None
    for receiver in receivers:
        receiver.settimeout(0.0)
        try:
            while receiver.recv(LARGEST):
                pass
        except BlockingIOError:
            pass


def arrival_us(frame, sender, receivers):  # type: (bytes, socket.socket, list[socket.socket]) -> float | None
    begun, sent_s = time.monotonic(), time.time()
    expected, deadline = addresses(frame), begun + TIMEOUT_S
    sender.send(frame)
    while time.monotonic() < deadline:
        for receiver in select.select(receivers, [], [], TIMEOUT_S)[0]:
            data, ancillary, _, address = receiver.recvmsg(LARGEST, 256)
            if address[2] == socket.PACKET_OUTGOING or addresses(data) != expected:
                continue
            for _level, kind, stamp in ancillary:
                if kind == SO_TIMESTAMPNS:
                    seconds, nanoseconds = struct.unpack("@ll", stamp[: struct.calcsize("@ll")])
                    taken_us = (int(seconds) - sent_s) * 1e6 + int(nanoseconds) / 1e3
                    passed_us = (time.monotonic() - begun) * 1e6
                    # A clock that was set meanwhile makes it negative, or longer than all of this took.
                    return taken_us if 0 <= taken_us <= passed_us else passed_us
    return None


def main():  # type: () -> None
    netns, interface, *others = sys.argv[1:]
    receivers = [packet_socket(*pair) for pair in zip(others[::2], others[1::2])]  # noqa: B905 - of Python 3.10
    sender = packet_socket(netns, interface)
    found = []
    for line in sys.stdin:
        time.sleep(PAUSE_S)
        drain(receivers)
        found.append(arrival_us(bytes.fromhex(line), sender, receivers))
    print(json.dumps(found))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
