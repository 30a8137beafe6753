"""Checks of the kernel: the parts of traffic control that Open vSwitch needs, and memory for DPDK and DOCA."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.datapath.host import Unknown
from xenoovs.verify.doctor.case import Case
from xenoovs.verify.doctor.check import Check, Fix, State, set_config

TC_MODULES = ("cls_flower", "act_mirred", "act_pedit", "act_csum", "sch_ingress")
"""Match, output, rewritten MACs and addresses with their checksums, and the qdisc they hang on."""

DOCA_HUGEPAGES_BYTES = 3072 * (2 << 20)
"""The least that deployment guides of NVIDIA's DPF reserve: 3072 pages of 2 MiB."""


def check_modules(case: Case) -> Iterator[Check]:
    kernel = case.host.kernel
    if not any(bridge.datapath_type == "system" for bridge in case.bridges):
        return
    name, why = "kernel modules", "Open vSwitch offloads by TC rules, which these parts of the kernel make up"
    if isinstance(kernel, Unknown) or isinstance(kernel.modules, Unknown):
        reason = kernel.reason if isinstance(kernel, Unknown) else _reason(kernel.modules)
        yield Check(name, State.UNKNOWN, reason, why)
        return
    missing = [module for module in TC_MODULES if kernel.modules.get(module) is False]
    untold = [module for module in TC_MODULES if module not in kernel.modules]
    if missing:
        fix = Fix((("apt-get", "install", f"linux-modules-extra-{kernel.release}"),))
        yield Check(name, State.WRONG, f"kernel {kernel.release} lacks {', '.join(missing)}", why, fix=fix)
    elif untold:
        yield Check(name, State.UNKNOWN, f"nothing tells whether there is {', '.join(untold)}", why)
    else:
        yield Check(name, State.OK, ", ".join(TC_MODULES), why)


def _reason(fact: object) -> str:
    return fact.reason if isinstance(fact, Unknown) else ""


def check_hugepages(case: Case) -> Iterator[Check]:
    database = case.database
    if database is None or not _uses_hugepages(case):
        return
    kernel, why = case.host.kernel, "DPDK and DOCA keep packets and rules in huge pages and do not start without"
    if isinstance(kernel, Unknown) or isinstance(kernel.hugepages_bytes, Unknown):
        reason = kernel.reason if isinstance(kernel, Unknown) else _reason(kernel.hugepages_bytes)
        yield Check("huge pages", State.UNKNOWN, reason, why)
        return
    needed = DOCA_HUGEPAGES_BYTES if database.has_doca else 1
    has = kernel.hugepages_bytes
    yield Check(
        "huge pages",
        State.OK if has >= needed else State.WRONG,
        f"{has >> 20} MiB reserved" + (f", guides of OVS-DOCA ask for {needed >> 20}" if has < needed > 1 else ""),
        why,
        fix=Fix((("sysctl", "-w", "vm.nr_hugepages=4096"),)),
    )


def check_doca_init(case: Case) -> Iterator[Check]:
    database = case.database
    if database is None or not database.has_doca:
        return
    userspace = any(bridge.datapath_type in ("netdev", "doca") for bridge in case.bridges)
    if not userspace:
        return
    is_set = database.config.get("doca-init") == "true"
    yield Check(
        "doca-init",
        State.OK if is_set else State.WRONG,
        "true" if is_set else "not set",
        "bridges of the userspace datapath use the NIC by DOCA only with it",
        fix=Fix((set_config("doca-init", "true"),), needs_restart=True),
    )


def _uses_hugepages(case: Case) -> bool:
    types = {interface.type for bridge in case.bridges for interface in bridge.interfaces}
    config = case.database.config if case.database is not None else {}
    return bool(types & {"dpdk", "doca"}) or "true" in (config.get("doca-init"), config.get("dpdk-init"))
