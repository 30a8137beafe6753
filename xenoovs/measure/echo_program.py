"""The two programs of the echo experiment. Their source is sent to the machines, like `runner.py`.

    serve ADDRESS                                      prints the port, then echoes every connection
    ask SOURCE ADDRESS PORT BYTES COUNT LIMIT_S        prints a JSON list of round-trip times in microseconds

A round trip ends with the last byte of the echo. The first message, which grows the TCP window, is not counted.
"""

import json
import selectors
import socket
import sys
import time
from contextlib import suppress

PIECE_BYTES = 1 << 16
TIMEOUT_S = 20.0


def open_socket(address):  # type: (str) -> socket.socket
    opened = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.bind((address, 0))
    return opened


def serve(address):  # type: (str) -> None
    listener = open_socket(address)
    listener.listen(16)
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, suppress(OSError):
            echo(connection)


def echo(connection):  # type: (socket.socket) -> None
    while True:
        piece = connection.recv(PIECE_BYTES)
        if not piece:
            return
        connection.sendall(piece)


def ask(source, address, port, size, count, limit_s):  # type: (str, str, int, int, int, float) -> list[float]
    connection = open_socket(source)
    connection.settimeout(TIMEOUT_S)
    connection.connect((address, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(0.0)
    times, message, begin_s = [], bytes(size), time.monotonic()
    with connection, selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        for number in range(count + 1):
            if number > 1 and time.monotonic() - begin_s > limit_s:
                break
            start_s = time.perf_counter()
            exchange(connection, selector, memoryview(message))
            if number:
                times.append((time.perf_counter() - start_s) * 1e6)
    return times


def exchange(connection, selector, unsent):  # type: (socket.socket, selectors.BaseSelector, memoryview) -> None
    """Send a message and read its echo at the same time; otherwise both sides could wait for each other to read."""
    left = len(unsent)
    while left:
        if unsent:
            with suppress(BlockingIOError):
                unsent = unsent[connection.send(unsent) :]
        selector.modify(connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0))
        ready = selector.select(TIMEOUT_S)
        if not ready:
            raise OSError(f"no answer within {TIMEOUT_S:.0f} s")
        if ready[0][1] & selectors.EVENT_READ:
            piece = connection.recv(PIECE_BYTES)
            if not piece:
                raise OSError("the server has closed the connection")
            left -= len(piece)


def main():  # type: () -> None
    try:
        if sys.argv[1] == "serve":
            serve(sys.argv[2])
        else:
            source, address, port, size, count, limit_s = sys.argv[2:]
            times = ask(source, address, int(port), int(size), int(count), float(limit_s))
            print(json.dumps([round(each, 3) for each in times]))
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
