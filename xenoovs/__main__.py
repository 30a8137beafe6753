"""`python -m xenoovs`: the command line."""

from __future__ import annotations

import gc
import signal

_GC_THRESHOLD = 200_000


def main() -> None:
    """Entry point of the console script; never returns.

    Ctrl-C during the import of the command line waits for its end (`xenoovs.cli.main` unblocks it), which then reports
    it as at any other time.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    # What a command imports and the many small values that it makes live to its end; the search for cycles among them
    # takes a fifth of its time.
    gc.set_threshold(_GC_THRESHOLD)
    from xenoovs.cli.main import main as run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
