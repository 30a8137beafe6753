"""Queries backend machines for their names: `python -m xenoovs.lab.inquiry`, addresses on stdin as JSON.

It runs in the namespace that sends health checks. It imports only the standard library.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from threading import Thread

from xenoovs.display import span
from xenoovs.lab.responder import STATUS_PORT

TIMEOUT_S = 2.5
"""Longer than the delay of a backend that `lab fail --how slow` made slow."""


def ask(address: str, answers: dict[str, tuple[float | None, str]]) -> None:
    """Add the latency in seconds and the answer of an address; without an answer, None and the reason."""
    begun_s = time.monotonic()
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(TIMEOUT_S)
        try:
            sock.connect((address, STATUS_PORT))
            sock.send(b"\n")
            answer = sock.recv(2048).decode(errors="replace").strip()
            answers[address] = time.monotonic() - begun_s, answer
        except TimeoutError:
            answers[address] = None, f"no answer in {span(TIMEOUT_S)}"
        except OSError as error:
            answers[address] = None, (error.strerror or str(error)).lower()


def main() -> None:
    answers: dict[str, tuple[float | None, str]] = {}
    threads = [Thread(target=ask, args=(address, answers)) for address in json.load(sys.stdin)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
