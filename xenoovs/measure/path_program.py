"""The two programs that measure the round trip on a path. Their source is sent to the machines, as that of `runner.py`.

    reflect INTERFACE ADDRESS FRAME            answers each frame to ADDRESS with FRAME; prints `ready` before the first
    ask INTERFACE ADDRESS FRAME COUNT          sends FRAME, waits for one to ADDRESS, prints a JSON list of microseconds

Frames are hexadecimal, without FCS. A round trip is without the time that the answering program took, which it writes
into the answer (as the delay of NTP, RFC 5905, section 8). So the clocks of the machines need not agree.
"""

import json
import socket
import struct
import sys
import time

ETH_P_ALL = 3
SO_TIMESTAMPNS = 35
"""The kernel notes when a packet was received (socket(7); SCM_TIMESTAMPNS has the same number)."""
LARGEST = 2048
TIMEOUT_S = 1.0
PAUSE_S = 0.002
MARK = struct.Struct("!IQq")
"""In the payload: the program's mark, the number of the frame, and nanoseconds that the answer took."""
MAGIC = 0x78706174


def open_socket(interface):  # type: (str) -> socket.socket
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.bind((interface, 0))
    opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return opened


def payload_at(frame):  # type: (bytes) -> int
    return 62 if frame[12:14] == b"\x86\xdd" else 42


def marked(frame, number, took_ns):  # type: (bytes, int, int) -> bytes
    """Return the frame with its mark, and without a UDP checksum, which would be that of another payload."""
    at = payload_at(frame)
    return frame[: at - 2] + b"\0\0" + MARK.pack(MAGIC, number, took_ns) + frame[at + MARK.size :]


def receive(opened, address):  # type: (socket.socket, bytes) -> tuple[int, int, int] | None
    """Return number, nanoseconds of the answer, and time of arrival of a frame to the address; None: it is another."""
    data, ancillary, _, sender = opened.recvmsg(LARGEST, 256)
    at = payload_at(data)
    destination = data[38:54] if at == 62 else data[30:34]
    if sender[2] == socket.PACKET_OUTGOING or destination != address or len(data) < at + MARK.size:
        return None
    magic, number, took_ns = MARK.unpack_from(data, at)
    for _level, kind, stamp in ancillary:
        if kind == SO_TIMESTAMPNS and magic == MAGIC:
            seconds, nanoseconds = struct.unpack("@ll", stamp[: struct.calcsize("@ll")])
            return number, took_ns, seconds * 10**9 + nanoseconds
    return None


def reflect(opened, address, frame):  # type: (socket.socket, bytes, bytes) -> None
    print("ready", flush=True)
    while True:
        found = receive(opened, address)
        if found is not None:
            opened.send(marked(frame, found[0], time.time_ns() - found[2]))


def ask(opened, address, frame, count):  # type: (socket.socket, bytes, bytes, int) -> list[float]
    # The first one makes megaflows and neighbours, and is not counted.
    times = [round_trip_us(opened, address, frame, number) for number in range(count + 1)]
    return [each for each in times[1:] if each is not None]


def round_trip_us(opened, address, frame, number):  # type: (socket.socket, bytes, bytes, int) -> float | None
    time.sleep(PAUSE_S)
    begun = time.monotonic()
    deadline = begun + TIMEOUT_S
    sent_ns = time.time_ns()
    opened.send(marked(frame, number, 0))
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        opened.settimeout(left_s)
        try:
            found = receive(opened, address)
        except socket.timeout:  # noqa: UP041 - the name in Python 3.7
            return None
        if found is not None and found[0] == number:
            taken_us = (found[2] - sent_ns - found[1]) / 1e3
            # A clock that was set meanwhile makes it negative, or longer than all of this took.
            return taken_us if 0 < taken_us <= (time.monotonic() - begun) * 1e6 else None


def main():  # type: () -> None
    role, interface, address, frame = sys.argv[1:5]
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    opened = open_socket(interface)
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
