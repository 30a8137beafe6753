"""The one subprocess: exit status, time limit, missing program, and bytes that are no text."""

from __future__ import annotations

import resource
import sys

import pytest

from xenoovs.errors import CommandFailed, CommandMissing, CommandTimeout, SystemFailure
from xenoovs.switch.process import run, try_run


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_stdout_and_stderr_are_kept_apart() -> None:
    done = run(_python("import sys; print('out'); print('err', file=sys.stderr)"))
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 0)


def test_a_failure_shows_the_stderr_of_the_program() -> None:
    with pytest.raises(CommandFailed, match="failed with status 3: the reason") as caught:
        run(_python("import sys; print('the reason', file=sys.stderr); sys.exit(3)"))
    assert caught.value.exit_code == 3


def test_a_program_that_does_not_end() -> None:
    with pytest.raises(CommandTimeout) as caught:
        run(_python("import time; time.sleep(60)"), timeout_s=0.1)
    assert caught.value.retryable


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(CommandMissing, match="nosuch-program is not installed"):
        run(["nosuch-program"])


def test_names_beyond_ascii_go_in_and_come_out() -> None:
    """Whatever the locale of the user: the tools of Open vSwitch write UTF-8."""
    echo = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    assert run(_python(echo), stdin="output:é1").stdout == "output:é1"


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert try_run(_python("import sys; sys.stdout.buffer.write(b'a\\xffb')")).stdout == "a\\xffb"


def test_a_host_without_descriptors_is_an_error_that_may_pass() -> None:
    """The agent retries its round later; an unhandled OSError ended the agent."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(SystemFailure, match="true cannot be started: Too many open files") as failed:
            run(["true"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert failed.value.retryable
