"""`make demo-fleet`: three DPUs behind a router, a store of three servers, and 64 clients, while parts of it die.

All of it is in network namespaces, and is removed at the end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.demo_fleet.place import new_place
from scripts.demo_fleet.story import Story, Unfinished
from xenoovs.errors import XenoovsError
from xenoovs.lab.host import check_host


def main() -> int:
    """Show the demo; return the exit status."""
    parser = argparse.ArgumentParser(prog="demo_fleet", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="leave no time to read; so it is outside of a terminal")
    is_fast = parser.parse_args().fast or not sys.stdout.isatty()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        check_host(needs_ipv6=False)
        with new_place() as place:
            Story(place, is_fast=is_fast).run()
    except BrokenPipeError:
        # Its reader has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except (XenoovsError, Unfinished) as problem:
        print(f"\ndemo-fleet: {problem}", file=sys.stderr)
        return 1
    print("\nRemoved: all processes, network namespaces and files of this demo.")
    return 0


def _end(number: int, _frame: object) -> None:
    # What removes everything must not be interrupted.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    os.write(2, b"\nremoving everything\n")
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
