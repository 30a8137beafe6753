"""The programs that send and time single frames. Their source is sent to the machines.

    arrival SENDER-NETNS SENDER-INTERFACE (NETNS INTERFACE)...      until it arrives at one of these interfaces
    rule SENDER-NETNS SENDER-INTERFACE MARK                         until a megaflow with MARK names its source address

They read frames from stdin, in hexadecimal, one a line, and print a JSON list: microseconds for each, or null after the
time limit. A frame is recognised by its source address and ports. Sender and receivers are on one machine, and so share
a clock. Megaflows are read from ovs-vswitchd's control socket (ovs-appctl(8)).

    reflect INTERFACE ADDRESS FRAME            answers each frame to ADDRESS with FRAME; prints `ready` before the first
    ask INTERFACE ADDRESS FRAME COUNT          sends FRAME, waits for one to ADDRESS, prints a JSON list of microseconds

Frames are hexadecimal, without FCS. The time that the answering program takes is subtracted from the round trip: the
answer contains it (as in NTP, RFC 5905, section 8). So the clocks of the machines need not agree.
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
"""Receive time stamps of the kernel (socket(7); SCM_TIMESTAMPNS has the same number)."""
ARRIVAL_TIMEOUT_S, RULE_TIMEOUT_S, ANSWER_TIMEOUT_S = 0.5, 3.0, 1.0
LARGEST = 2048
PAUSE_S = 0.002
MARK = struct.Struct("!IQq")
"""The payload of a frame: the program's mark, the frame's number, and the nanoseconds that the answer took."""
MAGIC = 0x78706174


def enter(netns):  # type: (str) -> None
    with open("/run/netns/" + netns) as stream:  # noqa: PTH123 - as short as the rest of the program
        if ctypes.CDLL(None, use_errno=True).setns(stream.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def packet_socket(interface):  # type: (str) -> socket.socket
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.bind((interface, 0))
    opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return opened


def received_ns(ancillary):  # type: (list[tuple[int, int, bytes]]) -> int | None
    """Return when the kernel received a frame, in nanoseconds of the wall clock."""
    for _level, kind, stamp in ancillary:
        if kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("@ll", stamp[: struct.calcsize("@ll")])
            return int(seconds) * 10**9 + int(nanoseconds)
    return None


def source(frame):  # type: (bytes) -> bytes
    return frame[22:38] if frame[12:14] == b"\x86\xdd" else frame[26:30]


def addresses(frame):  # type: (bytes) -> bytes
    """Return source address and ports, without the destination address, which NAT may change."""
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
    begun, sent_ns = time.monotonic(), time.time_ns()
    expected, deadline = addresses(frame), begun + ARRIVAL_TIMEOUT_S
    sender.send(frame)
    while time.monotonic() < deadline:
        for receiver in select.select(receivers, [], [], ARRIVAL_TIMEOUT_S)[0]:
            data, ancillary, _, address = receiver.recvmsg(LARGEST, 256)
            if address[2] == socket.PACKET_OUTGOING or addresses(data) != expected:
                continue
            at_ns, passed_us = received_ns(ancillary), (time.monotonic() - begun) * 1e6
            if at_ns is not None:
                taken_us = (at_ns - sent_ns) / 1e3
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


def payload_at(frame):  # type: (bytes) -> int
    return 62 if frame[12:14] == b"\x86\xdd" else 42


def marked(frame, number, took_ns):  # type: (bytes, int, int) -> bytes
    """Return the frame with the mark and no UDP checksum, which would be wrong for this payload."""
    at = payload_at(frame)
    return frame[: at - 2] + b"\0\0" + MARK.pack(MAGIC, number, took_ns) + frame[at + MARK.size :]


def answer(opened, address):  # type: (socket.socket, bytes) -> tuple[int, int, int] | None
    """Return number, nanoseconds of the answer, and arrival time of a frame; None if it is not for the address."""
    data, ancillary, _, sender = opened.recvmsg(LARGEST, 256)
    at = payload_at(data)
    destination = data[38:54] if at == 62 else data[30:34]
    if sender[2] == socket.PACKET_OUTGOING or destination != address or len(data) < at + MARK.size:
        return None
    magic, number, took_ns = MARK.unpack_from(data, at)
    at_ns = received_ns(ancillary)
    return None if at_ns is None or magic != MAGIC else (number, took_ns, at_ns)


def reflect(opened, address, frame):  # type: (socket.socket, bytes, bytes) -> None
    print("ready", flush=True)
    while True:
        found = answer(opened, address)
        if found is not None:
            opened.send(marked(frame, found[0], time.time_ns() - found[2]))


def ask(opened, address, frame, count):  # type: (socket.socket, bytes, bytes, int) -> list[float]
    # The first one makes megaflows and neighbour entries, and is not counted.
    times = [round_trip_us(opened, address, frame, number) for number in range(count + 1)]
    return [each for each in times[1:] if each is not None]


def round_trip_us(opened, address, frame, number):  # type: (socket.socket, bytes, bytes, int) -> float | None
    time.sleep(PAUSE_S)
    begun = time.monotonic()
    deadline = begun + ANSWER_TIMEOUT_S
    sent_ns = time.time_ns()
    opened.send(marked(frame, number, 0))
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        opened.settimeout(left_s)
        try:
            found = answer(opened, address)
        except socket.timeout:  # noqa: UP041 - the name in Python 3.7
            return None
        if found is not None and found[0] == number:
            taken_us = (found[2] - sent_ns - found[1]) / 1e3
            # A clock that was set meanwhile makes it negative, or longer than all of this took.
            return taken_us if 0 < taken_us <= (time.monotonic() - begun) * 1e6 else None


def measure_each(role, netns, interface, *others):  # type: (str, str, str, str) -> list[float | None]
    receivers = []
    for at in range(0, len(others) if role == "arrival" else 0, 2):
        enter(others[at])
        receivers.append(packet_socket(others[at + 1]))
    enter(netns)
    sender = packet_socket(interface)
    found = []
    for line in sys.stdin:
        time.sleep(PAUSE_S)
        drain(receivers)
        frame = bytes.fromhex(line)
        found.append(rule_us(frame, sender, others[0]) if role == "rule" else arrival_us(frame, sender, receivers))
    return found


def main():  # type: () -> None
    role = sys.argv[1]
    if role in ("arrival", "rule"):
        print(json.dumps(measure_each(*sys.argv[1:])))
        return
    interface, address, frame = sys.argv[2:5]
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    opened = packet_socket(interface)
    if role == "reflect":
        reflect(opened, packed, bytes.fromhex(frame))
    else:
        times = ask(opened, packed, bytes.fromhex(frame), int(sys.argv[5]))
        print(json.dumps([round(each, 3) for each in times]))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
