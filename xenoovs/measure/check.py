"""Finds what the machines of a bed lack for experiments, and the commands that fix it."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click

from xenoovs.dataclass import asdict, dataclass, replace
from xenoovs.display import quantity, span
from xenoovs.errors import CommandFailed, XenoovsError, counted
from xenoovs.measure.bed import PKTGEN, last_line
from xenoovs.measure.machines_bed import BedFile, BedRole, OpenPlaces, load_bed_file
from xenoovs.regex import regex
from xenoovs.switch.process import PACKAGES
from xenoovs.terminal.command import EXIT_DIFFERS
from xenoovs.terminal.options import output_option
from xenoovs.terminal.output import answer, echo, print_table

# What each experiment needs, besides python3: without it no command runs on a machine at all.

EXPERIMENTS = ("rate", "latency", "loss", "echo", "designs", "next-hops", "entries", "insert", "paths")
"""Experiments that run on the machines of a bed."""

_TO_SERVICE = ("rate", "latency", "loss", "designs", "next-hops", "entries", "insert")
"""Experiments that send a load of clients, with the generator's driver."""
_WITH_LOADS = (*_TO_SERVICE, "paths")


@dataclass(frozen=True, slots=True)
class MachineNeed:
    """Something that experiments need on a machine.

    `lacking`: What is not possible without it, as a clause; empty if the experiments fail.
    """

    name: str
    experiments: Sequence[str] = EXPERIMENTS
    lacking: str = ""
    is_module: bool = False

    @property
    def fix(self) -> str:
        """Return the command that installs it."""
        if self.name == "xenoovs":
            return "apt-get install ./xenoovs_*.deb"
        if self.is_module:
            # Debian's cloud kernels lack modules that its other kernels have.
            return "apt-get install linux-image-$(dpkg --print-architecture)"
        return f"apt-get install {PACKAGES.get(self.name, self.name)}"


_NEEDS: Mapping[str, tuple[MachineNeed, ...]] = {
    "generator": (MachineNeed("ethtool", _WITH_LOADS),),
    "client": (),
    "dpu": (
        MachineNeed("ovs-ofctl"),
        MachineNeed("ovs-vsctl"),
        MachineNeed("ovs-appctl"),
        MachineNeed("ethtool", _WITH_LOADS),
        MachineNeed("xenoovs", ("echo",), "`measure echo` refuses --offload"),
        MachineNeed("ip_vs", ("designs",), "`measure compare designs` leaves out IPVS", is_module=True),
        MachineNeed("ipvsadm", ("designs",), "`measure compare designs` leaves out IPVS"),
    ),
    "backend": (
        MachineNeed("bash", _TO_SERVICE),
        MachineNeed("ethtool", _WITH_LOADS),
        MachineNeed("tcpreplay", ("paths",), "`measure paths` works only with --directions in"),
        MachineNeed("gzip", ("paths",), "`measure paths` works only with --directions in"),
    ),
}
"""By role; `_sending` adds what the generator's driver needs."""


def machine_needs(kind: str, *, driver: str, experiments: Iterable[str]) -> tuple[MachineNeed, ...]:
    """Return what `experiments` need on a machine. `kind`: `generator`, `client`, `dpu` or `backend`."""
    needs = [*_NEEDS[kind], *(_sending(driver) if kind == "generator" else ())]
    chosen = [*experiments]
    narrowed = (
        MachineNeed(need.name, [name for name in chosen if name in need.experiments], need.lacking, need.is_module)
        for need in needs
    )
    return tuple(need for need in narrowed if need.experiments)


def _sending(driver: str) -> Iterator[MachineNeed]:
    """Yield what a generator needs. Loads on paths need tcpreplay, whichever driver sends the others."""
    by_tcpreplay: Sequence[str] = _WITH_LOADS
    if driver == PKTGEN:
        yield MachineNeed("pktgen", _TO_SERVICE, is_module=True)
        by_tcpreplay = ("paths",)
    yield MachineNeed("tcpreplay", by_tcpreplay)
    yield MachineNeed("gzip", by_tcpreplay)


_MTU = 1500
_MOST_CLOCK_S = 1.0

_SCRIPT = """\
for tool in {tools}; do command -v "$tool" >/dev/null || echo "missing=$tool"; done
for module in {modules}; do
  [ -e "/proc/net/$module" ] || modprobe -n -q "$module" 2>/dev/null || echo "missing=$module"
done
for interface in {interfaces}; do
  cd "/sys/class/net/$interface" 2>/dev/null || {{ echo "absent=$interface"; continue; }}
  echo "link=$interface $(cat carrier 2>/dev/null || echo 0) $(cat mtu) $(cat speed 2>/dev/null || echo -1)" \
"$(ls queues | grep -c rx-) $(cat device/numa_node 2>/dev/null || echo -1)"
  [ -z "{is_dpu}" ] || echo "bridge=$interface $(ovs-vsctl iface-to-br "$interface" 2>/dev/null)"
done
echo "governor=$(cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2>/dev/null)"
echo "cpus=$(nproc)"
echo "nodes=$(ls -d /sys/devices/system/node/node[0-9]* 2>/dev/null | wc -l)"
echo "time=$(date +%s.%N)"
"""
_LINK = regex(r"(\S+) ([01]) (\d+) (-?\d*) *(\d+) (-?\d+)")


@dataclass(frozen=True, slots=True)
class BedFinding:
    """One problem of a machine.

    `fix`: The command that fixes it on that machine; empty if there is none. `is_error`: Whether experiments fail
    because of it; if not, their figures are worse or incomplete.
    """

    role: str
    problem: str
    fix: str
    is_error: bool = True
    experiments: Sequence[str] = EXPERIMENTS


def check_bed(file: BedFile, *, experiments: Sequence[str] = EXPERIMENTS) -> list[BedFinding]:
    """Return the problems of each machine of a bed for some experiments, in the order of the roles."""
    found = []
    with ExitStack() as stack:
        places = OpenPlaces(stack)
        for role in file.roles:
            kind = role.role if role in (file.generator, file.client, file.dpu) else "backend"
            try:
                station = places.station(role)
                begun_s = time.time()
                needs = machine_needs(kind, driver=role.driver, experiments=experiments)
                text = station.run("sh", "-c", script_of(role, needs, is_dpu=kind == "dpu")).stdout
            except XenoovsError as error:
                problem = str(error)
                if isinstance(error, CommandFailed):
                    problem = f"commands do not run in {role.host.text}: {last_line(error)}"
                found.append(BedFinding(role.role, problem, ""))
                continue
            if not station.place.is_root:
                problem = f"commands on {station.place.name} do not run as root"
                fix = 'echo "$USER ALL=(ALL) NOPASSWD: ALL" | sudo tee /etc/sudoers.d/xenoovs'
                found.append(BedFinding(station.role, problem, fix))
            found += judge_machine(role, text, needs, clock_s=begun_s, took_s=time.time() - begun_s)
    return [replace(each, experiments=[*experiments]) if each.experiments == EXPERIMENTS else each for each in found]


def script_of(role: BedRole, needs: Sequence[MachineNeed], *, is_dpu: bool) -> str:
    return _SCRIPT.format(
        tools=shlex.join(need.name for need in needs if not need.is_module),
        modules=shlex.join(need.name for need in needs if need.is_module),
        interfaces=shlex.join(role.interfaces),
        is_dpu="yes" if is_dpu else "",
    )


def judge_machine(
    role: BedRole, text: str, needs: Sequence[MachineNeed], *, clock_s: float, took_s: float
) -> Iterator[BedFinding]:
    error, warning = partial(BedFinding, role.role), partial(BedFinding, role.role, is_error=False)
    lines = [line.split("=", 1) for line in text.splitlines() if "=" in line]
    facts = dict(lines)
    missing = {value for key, value in lines if key == "missing"}
    yield from (_missing(role.role, need) for need in needs if need.name in missing)
    for key, value in lines:
        if key == "absent":
            yield error(f"there is no interface {value}", "ip -brief link")
        elif key == "bridge" and not value.partition(" ")[2]:
            port = value.strip()
            yield error(f"{port} is no port of a bridge", f"ovs-vsctl add-port BRIDGE {port}")
        elif key == "link" and (link := _LINK.fullmatch(value)):
            yield from _judge_link(role.role, link, cpus=int(facts["cpus"]), nodes=int(facts["nodes"]))
    if facts["governor"] not in ("", "performance"):
        problem = f"the CPU governor is {facts['governor']}: rates depend on how fast it reacts"
        yield warning(problem, "cpupower frequency-set -g performance")
    late_s = float(facts["time"]) - clock_s
    if not -_MOST_CLOCK_S <= late_s <= took_s + _MOST_CLOCK_S:
        problem = f"its clock is {span(abs(late_s))} {'ahead' if late_s > 0 else 'behind'}"
        yield warning(problem, "timedatectl set-ntp true")


def _missing(role: str, need: MachineNeed) -> BedFinding:
    what = f"the kernel has no module {need.name}" if need.is_module else f"{need.name} not found"
    names = ", ".join(need.experiments) if len(need.experiments) < len(EXPERIMENTS) else "every experiment"
    consequence = need.lacking or f"needed by {names}"
    return BedFinding(role, f"{what}: {consequence}", need.fix, not need.lacking, need.experiments)


def _judge_link(role: str, link: re.Match[str], *, cpus: int, nodes: int) -> Iterator[BedFinding]:
    error, warning = partial(BedFinding, role), partial(BedFinding, role, is_error=False)
    name, carrier, mtu, speed, queues, node = link.groups()
    if carrier == "0":
        yield error(f"{name} is down or has no link", f"ip link set dev {name} up")
    if int(mtu) < _MTU:
        yield error(f"{name} has MTU {mtu}; frames of 1518 bytes need {_MTU}", f"ip link set dev {name} mtu {_MTU}")
    # A device without a NUMA node is no NIC.
    if int(node) < 0 and speed in ("-1", ""):
        return
    if int(queues) == 1 < cpus:
        yield warning(f"{name} has 1 receive queue and the machine {cpus} CPUs", f"ethtool -L {name} combined {cpus}")
    if speed.isdigit() and int(speed) < _SLOW_MBPS:
        yield warning(f"{name} runs at {quantity(int(speed) * 1e6)}bit/s", f"ethtool {name}")
    if nodes > 1 and int(node) >= 0:
        problem = f"{name} is on NUMA node {node} of {nodes}: programs on others are slower"
        yield warning(problem, f"numactl --cpunodebind={node} COMMAND")


_SLOW_MBPS = 10_000


@click.command("check")
@click.argument("bed", metavar="BED", type=click.Path(path_type=Path))
@click.option(
    "--for", "experiment", type=click.Choice(EXPERIMENTS), help="Check for one experiment.  [default: for all]"
)
@output_option
@click.pass_context
def check_command(context: click.Context, /, bed: Path, *, experiment: str | None) -> None:
    """Check what the machines of a bed lack, and print the command that fixes it.

    It changes nothing. Exit status is 2 if an experiment would fail. Warnings are about worse figures, and about parts
    that an experiment leaves out.

    \b
    A bed file, with the names of the backends as in the config:
      version: 1
      generator: {host: ssh://root@fips4, interface: ens1f0}
      client:    {host: ssh://root@fips1, interface: ens1f0, address: 10.3.10.42}
      dpu:       {host: ssh://ubuntu@fips5, uplinks: [p0, p1]}
      backends:
        fips2: {host: ssh://root@fips2, interface: ens1f0}
        fips3: {host: ssh://root@fips3, interface: ens1f0}

    `host` is ssh://USER@HOST[:PORT], netns:NAME or lab:NAME. Keys and settings of ssh are those of `ssh HOST`, which
    must not prompt. A user other than root needs sudo without a password. `mac` of the dpu is the destination of
    packets to VIPs without a MAC in the config; the default is the MAC of the first uplink.

    \b
    Examples:
      xenoovs measure check bed.yaml
      xenoovs measure check bed.yaml --for paths
    """
    file = load_bed_file(bed)
    findings = check_bed(file, experiments=EXPERIMENTS if experiment is None else (experiment,))
    is_usable = not any(finding.is_error for finding in findings)
    answer(
        lambda: {"usable": is_usable, "findings": [asdict(finding) for finding in findings]},
        lambda: _show(findings, machines=len(file.roles)),
    )
    if not is_usable:
        context.exit(EXIT_DIFFERS)


def _show(findings: list[BedFinding], *, machines: int) -> None:
    if not findings:
        echo(f"{counted(machines, 'role')} checked, nothing is missing")
        return
    rows = [
        [finding.role, "error" if finding.is_error else "warning", finding.fix or "-", finding.problem]
        for finding in findings
    ]
    print_table(["ROLE", "KIND", "COMMAND THERE", "PROBLEM"], rows)
