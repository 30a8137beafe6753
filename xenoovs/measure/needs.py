"""The programs and kernel modules that each experiment needs on each machine of a bed.

python3 is not among them: without it no command runs there at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from xenoovs.dataclass import dataclass
from xenoovs.measure.bed import PKTGEN
from xenoovs.switch.process import PACKAGES

EXPERIMENTS = ("rate", "latency", "loss", "echo", "designs", "next-hops", "entries", "insert", "paths")
"""Those that run on the machines of a bed."""

_TO_SERVICE = ("rate", "latency", "loss", "designs", "next-hops", "entries", "insert")
"""They send a load as clients, by the driver of the generator."""
_WITH_LOADS = (*_TO_SERVICE, "paths")


@dataclass(frozen=True, slots=True)
class MachineNeed:
    """Something that experiments need on a machine.

    `lacking`: What is not possible without it, as a clause; empty: the experiments fail.
    """

    name: str
    experiments: Sequence[str] = EXPERIMENTS
    lacking: str = ""
    is_module: bool = False

    @property
    def fix(self) -> str:
        """The command that brings it."""
        if self.name == "xenoovs":
            return "apt-get install ./xenoovs_*.deb"
        if self.is_module:
            # Kernels of clouds lack modules that those of Debian have.
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
"""By role; of the generator also what its driver needs."""


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
    """Yield what a generator needs; loads on paths are those of tcpreplay, whichever driver sends the others."""
    by_tcpreplay: Sequence[str] = _WITH_LOADS
    if driver == PKTGEN:
        yield MachineNeed("pktgen", _TO_SERVICE, is_module=True)
        by_tcpreplay = ("paths",)
    yield MachineNeed("tcpreplay", by_tcpreplay)
    yield MachineNeed("gzip", by_tcpreplay)
