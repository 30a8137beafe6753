"""The program that drives the kernel's pktgen. Its source is sent to the generator, like `runner.py`.

It reads a line of JSON, {"interface": "ens1f0", "settings": ["count 1000", ...], "seconds": 2.0 or null}, sends up to
that count or for that time, and prints {"sent": 1000, "seconds_s": 0.5}. pktgen stops when the process that wrote
"start" gets a signal, so the load ends with this program (pktgen_wait_all_threads_run of net/core/pktgen.c).
"""

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path("/proc/net/pktgen")
THREAD = "kpktgend_0"
STOP_S = 10
RESULT = re.compile(r"Result: OK: (\d+)\(.*?\) usec, (\d+) \(")


class Over(Exception):
    """The time is up, or a signal ends the load."""


def write(file, command):  # type: (str, str) -> None
    # Without a buffer, which Python would write again after a signal.
    descriptor = os.open(str(ROOT / file), os.O_WRONLY)
    try:
        os.write(descriptor, command.encode() + b"\n")
    finally:
        os.close(descriptor)


def end(*_):  # type: (object) -> None
    raise Over


def send(interface, settings, seconds):  # type: (str, list[str], float | None) -> tuple[int, int]
    """Send, and return pktgen's microseconds and packets."""
    write(THREAD, "rem_device_all")
    write(THREAD, f"add_device {interface}")
    try:
        for setting in settings:
            write(interface, setting)
        with suppress(Over):
            for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, end)
            signal.setitimer(signal.ITIMER_REAL, seconds or 0)
            write("pgctrl", "start")
        return result(interface)
    finally:
        write(THREAD, "rem_device_all")


def result(interface):  # type: (str) -> tuple[int, int]
    """Return pktgen's result, which it writes shortly after the signal."""
    until_s = time.monotonic() + STOP_S
    while True:
        text = (ROOT / interface).read_text()
        found = RESULT.search(text)
        if found is not None:
            return int(found.group(1)), int(found.group(2))
        if time.monotonic() > until_s:
            raise OSError(text.strip().splitlines()[-1])
        time.sleep(0.01)


def main():  # type: () -> None
    job = json.loads(sys.stdin.readline())
    try:
        took_us, sent = send(job["interface"], job["settings"], job["seconds"])
    except OSError as error:
        sys.exit(f"pktgen: {error}")
    print(json.dumps({"sent": sent, "seconds_s": took_us / 1e6}))


if __name__ == "__main__":
    main()
