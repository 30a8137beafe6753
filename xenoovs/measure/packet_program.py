"""The program that sends single frames and measures what becomes of each. Its source is sent to the machine.

    arrival SENDER-NETNS SENDER-INTERFACE (NETNS INTERFACE)...      until it arrives at one of these interfaces
    rule SENDER-NETNS SENDER-INTERFACE MARK                         until a megaflow with MARK names its source address

Frames come in hexadecimal on stdin, one a line. It prints a JSON list: microseconds for each, or null for one that took
too long. A frame is known by its source address and its ports. Sender and receivers are one machine, and so share a
clock. Megaflows are asked of ovs-vswitchd at its control socket (ovs-appctl(8)).
"""

import ctypes
import json
import os
import select
import socket
import struct
import sys
import time
from pathlib import Path

CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3
SO_TIMESTAMPNS = 35
"""The kernel notes when a packet was received (socket(7); SCM_TIMESTAMPNS has the same number)."""
ARRIVAL_TIMEOUT_S, RULE_TIMEOUT_S = 0.5, 3.0
LARGEST = 2048
PAUSE_S = 0.002


def packet_socket(netns, interface):  # type: (str, str) -> socket.socket
    with open("/run/netns/" + netns) as stream:  # noqa: PTH123 - as short as the rest of the program
        if ctypes.CDLL(None, use_errno=True).setns(stream.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.bind((interface, 0))
    opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return opened


def source(frame):  # type: (bytes) -> bytes
    return frame[22:38] if frame[12:14] == b"\x86\xdd" else frame[26:30]


def addresses(frame):  # type: (bytes) -> bytes
    """Return source address and ports; NAT may change the destination."""
    return source(frame) + (frame[54:58] if frame[12:14] == b"\x86\xdd" else frame[34:38])


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
    expected, deadline = addresses(frame), begun + ARRIVAL_TIMEOUT_S
    sender.send(frame)
    while time.monotonic() < deadline:
        for receiver in select.select(receivers, [], [], ARRIVAL_TIMEOUT_S)[0]:
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


def megaflows():  # type: () -> str
    """Return `ovs-appctl dpctl/dump-flows -m`, without starting a program."""
    rundir = os.environ.get("OVS_RUNDIR") or "/var/run/openvswitch"
    pid = (Path(rundir) / "ovs-vswitchd.pid").read_text().strip()
    with socket.socket(socket.AF_UNIX) as opened:
        opened.connect(os.path.join(rundir, "ovs-vswitchd.%s.ctl" % pid))  # noqa: PTH118, UP031
        opened.sendall(json.dumps({"method": "dpctl/dump-flows", "params": ["-m"], "id": 0}).encode())
        answer = b""
        while True:
            piece = opened.recv(1 << 20)
            answer += piece
            try:
                return str(json.loads(answer.decode())["result"])
            except ValueError:
                if not piece:
                    raise


def rule_us(frame, sender, mark):  # type: (bytes, socket.socket, str) -> float | None
    packed, begun = source(frame), time.monotonic()
    address = "src=%s," % socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)  # noqa: UP031
    sender.send(frame)
    while time.monotonic() < begun + RULE_TIMEOUT_S:
        if any(address in line and mark in line for line in megaflows().splitlines()):
            return (time.monotonic() - begun) * 1e6
    return None


def main():  # type: () -> None
    role, netns, interface, *others = sys.argv[1:]
    receivers = []
    if role == "arrival":
        receivers = [packet_socket(*pair) for pair in zip(others[::2], others[1::2])]  # noqa: B905 - of Python 3.10
    sender = packet_socket(netns, interface)
    found = []
    for line in sys.stdin:
        time.sleep(PAUSE_S)
        drain(receivers)
        frame = bytes.fromhex(line)
        found.append(rule_us(frame, sender, others[0]) if role == "rule" else arrival_us(frame, sender, receivers))
    print(json.dumps(found))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
