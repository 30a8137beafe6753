"""The backend machines of a lab: their responders, and how they are made to fail and work again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from pathlib import Path

from xenoovs.display import span
from xenoovs.errors import CommandFailed, LabError, did_you_mean
from xenoovs.lab.host import LabNetns, kill_and_wait, marked_processes, namespaces_of, processes_in
from xenoovs.lab.lab import MARK, Lab, link_config, sole_owner, write_config, write_whole
from xenoovs.lab.probing import in_lab, job_of
from xenoovs.lab.responder import Job, render_job
from xenoovs.lab.topology import Machine
from xenoovs.lab.underlay import machine_ovs
from xenoovs.log import warn
from xenoovs.model.balancer import Balancer, ProbeKind
from xenoovs.model.include import ConfigSources
from xenoovs.switch.process import PYTHON_MODULE, run

SLOW_S = 2.0
"""The delay of a slow backend's answers."""

_FAILURES = "failures.json"
_CERTIFICATE = "https.pem"


class Failure(Enum):
    """How a backend fails."""

    LINK = "link"
    PORT = "port"
    SILENT = "silent"
    SLOW = "slow"


EFFECTS = {
    Failure.LINK: "its cable is unplugged",
    Failure.PORT: "its program has ended, and the kernel refuses connections",
    Failure.SILENT: "it receives packets and answers nothing, not even ARP",
    Failure.SLOW: f"its program answers after {span(SLOW_S)}",
}
_KERNEL = frozenset({ProbeKind.ICMP, ProbeKind.ARP})
UNNOTICED_BY = {Failure.PORT: _KERNEL, Failure.SLOW: _KERNEL | {ProbeKind.TCP}}
"""The probes that do not detect a failure, as the machine's kernel still answers them."""


def check_complete(lab: Lab) -> None:
    """Raise LabError unless all namespaces of a lab exist."""
    if missing := set(lab.topology.namespaces) - set(namespaces_of(lab.name)):
        names = ", ".join(sorted(missing))
        raise LabError(
            f"lab {lab.name} is incomplete (namespace {names} is missing); recreate it with "
            f"`xenoovs lab down --lab {lab.name}`, then `xenoovs lab up --lab {lab.name}`"
        )


def find_machine(lab: Lab, backend: str) -> Machine:
    """Return the machine of a backend, by its name in the config or by the machine's label. Raises LabError."""
    machines = lab.topology.machines
    named = [machine for machine in machines if backend in machine.names or backend == machine.label]
    if len(named) == 1:
        return named[0]
    if named:
        labels = " or ".join(machine.label for machine in named)
        raise LabError(f"lab {lab.name} has several backends {backend!r}, behind different ports: name one as {labels}")
    names = [name for machine in machines for name in machine.names]
    those = f"it has {', '.join(names[:10])}{', ...' if names[10:] else ''}"
    hint = did_you_mean(backend, names, "did you mean {}?") or those
    raise LabError(f"lab {lab.name} has no backend {backend!r}; {hint}")


def failures_of(lab: Lab) -> dict[str, Failure]:
    """Return the failures that `fail` has set, by machine label."""
    try:
        return {label: Failure(how) for label, how in json.loads((lab.directory / _FAILURES).read_text()).items()}
    except (FileNotFoundError, ValueError):
        return {}


def fail(lab: Lab, machine: Machine, how: Failure, balancer: Balancer) -> None:
    """Make a backend fail. This replaces an earlier failure of it."""
    check_complete(lab)
    with sole_owner(lab.directory):
        # Written first, so that `heal` can repair the machine after a crash.
        _write_failures(lab, {**failures_of(lab), machine.label: how})
        _set_state(lab, machine, how, balancer)


def heal(lab: Lab, machines: Iterable[Machine], balancer: Balancer) -> tuple[Machine, ...]:
    """Make backends work again, also after their responder exited. Return those that had failed."""
    check_complete(lab)
    with sole_owner(lab.directory):
        failures = failures_of(lab)
        healed = [machine for machine in machines if machine.label in failures or not _responders(lab, machine)]
        for machine in healed:
            _set_state(lab, machine, None, balancer)
            failures.pop(machine.label, None)
            _write_failures(lab, failures)
        return tuple(healed)


def _write_failures(lab: Lab, failures: dict[str, Failure]) -> None:
    write_whole(lab.directory / _FAILURES, json.dumps({label: how.value for label, how in failures.items()}))


def _set_state(lab: Lab, machine: Machine, failure: Failure | None, balancer: Balancer) -> None:
    netns, place = LabNetns(lab.marks), machine.namespace
    link = "down" if failure is Failure.LINK else "up"
    netns.batch([f"link set dev {machine.switch_interface} {link}"], namespace=lab.topology.switch_namespace)
    if failure is Failure.SILENT:
        # A queue of limit 0 drops everything that the machine sends, also ARP (tc-pfifo(8)).
        netns.execute(place, ["tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo", "limit", "0"])
    elif "pfifo" in netns.execute(place, ["tc", "qdisc", "show", "dev", "eth0"]).stdout:
        netns.execute(place, ["tc", "qdisc", "del", "dev", "eth0", "root"])
    follow_config(lab, balancer, [machine], failures={} if failure is None else {machine.label: failure})


def follow_config(
    lab: Lab, balancer: Balancer, machines: Iterable[Machine], *, failures: dict[str, Failure] | None = None
) -> None:
    """Make machines answer the health checks of a config; restart responders whose job changed. Raises LabError."""
    failures = failures_of(lab) if failures is None else failures
    for machine in machines:
        failure = failures.get(machine.label)
        job = job_of(
            machine,
            balancer,
            lab.topology,
            log=str(lab.directory / f"{machine.label}.log"),
            certificate=lambda: str(_certificate(lab)),
        )
        if failure is Failure.SLOW:
            job = replace(job, delay_s=SLOW_S)
        _run_responder(lab, machine, None if failure is Failure.PORT else job)


class FollowedConfig:
    """Parses the config of an agent in a lab, and makes the backends answer its health checks."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._is_warned = False

    def __call__(self, text: bytes, sources: ConfigSources) -> Balancer:
        """Return the config, as `ConfigParser` does. Raises ConfigError, LabError."""
        from xenoovs.model.load import parse_config

        written = parse_config(text, file=str(sources.main), sources=sources, for_lab=True)
        if written.announce is not None and not self._is_warned:
            self._is_warned = True
            warn("announce is ignored in a lab", reason="its routes would be those of this host")
        balancer = in_lab(written, self._lab.topology)
        with sole_owner(self._lab.directory):
            write_config(self._lab.directory, balancer)
            if sources.main is not None:
                link_config(self._lab.directory, sources.main)
            follow_config(self._lab, balancer, self._lab.topology.machines)
        return balancer


def _run_responder(lab: Lab, machine: Machine, job: Job | None) -> None:
    """Run a machine's responder with this job; None to end it."""
    file = lab.directory / f"{machine.label}.json"
    wanted = "" if job is None else render_job(job)
    if wanted and file.exists() and file.read_text() == wanted and _responders(lab, machine):
        return
    file.unlink(missing_ok=True)
    for is_again in (False, True):
        kill_and_wait(_responders(lab, machine))
        if job is None:
            return
        try:
            LabNetns(lab.marks).execute(machine.namespace, [*PYTHON_MODULE, "xenoovs.lab.responder"], stdin=wanted)
            break
        except CommandFailed as error:
            # A killed command may have left a responder that enters the namespace only now.
            if is_again or not _responders(lab, machine):
                raise LabError(f"backend {machine.label} does not start to answer: {error.stderr.strip()}") from None
    file.write_text(wanted)


def _responders(lab: Lab, machine: Machine) -> set[int]:
    mine = set(processes_in(machine.namespace)) & set(marked_processes(MARK, str(lab.directory)))
    return mine - set(machine_ovs(lab, machine).pids())


def _certificate(lab: Lab) -> Path:
    """Return the certificate that all machines share. The first call makes it."""
    file = lab.directory / _CERTIFICATE
    if not file.exists():
        draft, subject = file.with_suffix(".new"), f"/CN=lab {lab.name}"
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        run([*argv, "-subj", subject, "-days", "365", "-keyout", str(draft), "-out", str(draft)])
        draft.replace(file)
    return file
