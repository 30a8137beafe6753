"""`python -m xenoovs`: the command line."""

from __future__ import annotations

import signal


def main() -> None:
    """Entry point of the console script; never returns.

    Ctrl-C during the import of the command line waits for its end (`xenoovs.cli.main` unblocks it), which then reports
    it as at any other time.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    from xenoovs.cli.main import main as run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
