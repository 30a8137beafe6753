"""`python -m xenoovs`: the command line."""

from __future__ import annotations

import gc
import os
import signal
import sys

_GC_THRESHOLD = 200_000


def _open_closed_streams() -> None:
    """Open what the shell has closed (`>&-`): else the next file or socket has this number, and gets the output.

    To write to it is an error on stdout, as it is where stdout is there and is full; what stderr gets is dropped.
    """
    for number, name, flags in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def main() -> None:
    """Entry point of the console script; never returns.

    Ctrl-C during the import of the command line waits for its end (`xenoovs.cli.main` unblocks it), which then reports
    it as at any other time.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    _open_closed_streams()
    # What a command imports and the many small values that it makes live to its end; the search for cycles among them
    # takes a fifth of its time.
    gc.set_threshold(_GC_THRESHOLD)
    from xenoovs.cli.main import main as run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
