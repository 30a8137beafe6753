"""The program that sends an elephant: `python -m xenoovs.lab.fabric.elephant ADDRESS RATE [SECONDS]`.

It sends UDP frames at a steady rate (in bit/s) to an address whose packets the far leaf drops without an answer. The
socket is not connected, so an ICMP error does not end it. It prints "ready", reads a time of the monotonic clock from
stdin, and begins at that time, or at once without one. It imports only the standard library.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress

PAYLOAD_BYTES = 1400
FRAME_BYTES = PAYLOAD_BYTES + 42
"""Bytes of a frame as tc-tbf(8) counts them: with Ethernet (without FCS), IPv4 and UDP headers."""

DISCARD_PORT = 9
"""Discard (RFC 863)."""

_STEP_S = 0.001
_MOST_LATE_S = 0.02
"""After a longer pause of the process the missed frames are not sent, as they would be a burst."""


def send(address: str, rate_bps: float, seconds_s: float) -> None:
    frame_s, payload = FRAME_BYTES * 8 / rate_bps, bytes(PAYLOAD_BYTES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        print("ready", flush=True)
        due_s = float(sys.stdin.readline().strip() or 0)
        time.sleep(max(0.0, due_s - time.monotonic()))
        end_s = time.monotonic() + seconds_s
        while (now_s := time.monotonic()) < end_s:
            due_s = max(due_s, now_s - _MOST_LATE_S)
            while due_s <= now_s:
                sock.sendto(payload, (address, DISCARD_PORT))
                due_s += frame_s
            time.sleep(_STEP_S)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError):
        try:
            send(sys.argv[1], float(sys.argv[2]), float(sys.argv[3] if sys.argv[3:] else "inf"))
        except BrokenPipeError:
            raise
        except OSError as error:
            sys.exit(f"the elephant cannot send to {sys.argv[1]}: {error.strerror or error}")
