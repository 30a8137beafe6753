"""Queries backend machines for their names: `python -m xenoovs.lab.inquiry`, addresses on stdin as JSON.

It runs in the namespace that sends health checks. It imports only the standard library.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Sequence

from xenoovs.display import span
from xenoovs.lab.responder import STATUS_PORT

TIMEOUT_S = 2.5
"""Longer than the delay of a backend that `lab fail --how slow` made slow."""


def ask(addresses: Sequence[str]) -> dict[str, tuple[float | None, str]]:
    """Return the latency in seconds and the answer of each address; without an answer, None and the reason."""
    answers: dict[str, tuple[float | None, str]] = {}
    begun_s = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for address in addresses:
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
            try:
                sock.connect((address, STATUS_PORT))
                sock.send(b"\n")
            except OSError as error:
                answers[address] = None, (error.strerror or str(error)).lower()
                sock.close()
                continue
            selector.register(sock, selectors.EVENT_READ, address)
        while selector.get_map() and (left_s := begun_s + TIMEOUT_S - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                selector.unregister(key.fileobj)
                sock, address = key.fileobj, key.data  # type: ignore[assignment]
                with sock:
                    try:
                        answer = sock.recv(2048).decode(errors="replace").strip()
                        answers[address] = time.monotonic() - begun_s, answer
                    except OSError as error:
                        answers[address] = None, (error.strerror or str(error)).lower()
        for key in list(selector.get_map().values()):
            answers[key.data] = None, f"no answer in {span(TIMEOUT_S)}"
    return answers


if __name__ == "__main__":
    print(json.dumps(ask(json.load(sys.stdin))))
