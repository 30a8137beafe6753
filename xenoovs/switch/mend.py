"""Run a command that changes the host: against the right Open vSwitch, in the right namespace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xenoovs.errors import CommandFailed
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.probe import Place
from xenoovs.switch.process import run

_TIMEOUT_S = 30


def mend(commands: Iterable[Sequence[str]], *, endpoint: Endpoint, place: Place) -> None:
    """Run them in order, up to the first that fails.

    Tools of Open vSwitch are led to `endpoint`; others run in the network namespace `place`.
    Raises CommandFailed, CommandMissing, CommandTimeout; SwitchUnreachable where the run directory is not known.
    """
    for command in commands:
        program, *arguments = command
        match program:
            case "ovs-vsctl":
                _vsctl(endpoint, arguments)
            case "ovs-appctl":
                run([program, *arguments], env=endpoint.env, timeout_s=_TIMEOUT_S)
            case _:
                run(place.argv(*command), timeout_s=_TIMEOUT_S)


def _vsctl(endpoint: Endpoint, arguments: Sequence[str]) -> None:
    argv = ["ovs-vsctl", f"--db={endpoint.db}", f"--timeout={_TIMEOUT_S}", *arguments]
    done = run(argv, timeout_s=_TIMEOUT_S + 5)
    if done.stderr.strip():
        # It ends with 0 where the database took the change and ovs-vswitchd could not carry it out (ovs-vsctl(8)).
        raise CommandFailed(argv=argv, exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)
