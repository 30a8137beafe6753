"""The program that measures how long a new client's rule takes. Its source is sent to a machine of a lab.

    SENDER-NETNS SENDER-INTERFACE MARK RUNDIR      a client's address and its frame in hexadecimal on stdin, one a line

It sends a frame, and asks ovs-vswitchd at its control socket (ovs-appctl(8)) for megaflows until one names the address
and has MARK. It prints a JSON list: microseconds for each frame, null where there was none in time.
"""

import ctypes
import json
import os
import socket
import sys
import time
from pathlib import Path

CLONE_NEWNET = 0x40000000
TIMEOUT_S = 3.0


def megaflows(rundir):  # type: (str) -> str
    """Return `ovs-appctl dpctl/dump-flows -m`, without starting a program."""
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


def rule_us(sender, address, frame, mark, rundir):  # type: (socket.socket, str, bytes, str, str) -> float | None
    begun_s = time.monotonic()
    sender.send(frame)
    while time.monotonic() < begun_s + TIMEOUT_S:
        found = megaflows(rundir)
        if any("src=%s," % address in line and mark in line for line in found.splitlines()):  # noqa: UP031
            return (time.monotonic() - begun_s) * 1e6
    return None


def main():  # type: () -> None
    netns, interface, mark, rundir = sys.argv[1:]
    with open("/run/netns/" + netns) as stream:  # noqa: PTH123 - as short as the rest of the program
        if ctypes.CDLL(None, use_errno=True).setns(stream.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.bind((interface, 0))
    found = []
    for line in sys.stdin:
        address, frame = line.split()
        found.append(rule_us(sender, address, bytes.fromhex(frame), mark, rundir))
        time.sleep(0.01)
    print(json.dumps(found))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
