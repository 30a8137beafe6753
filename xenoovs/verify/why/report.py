"""Diagnoses as plain values: groups for people, a dict that is ready for JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.datapath.megaflow import Megaflow
from xenoovs.openflow.render import render_match
from xenoovs.verify.diagnose import Diagnosis
from xenoovs.verify.verdict import Verdict
from xenoovs.verify.why.reason import Reason


@dataclass(frozen=True, slots=True)
class Group:
    """Megaflows, all of services or none, that run in one place for the same reasons.

    reasons: with the evidence of the first of them.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    diagnoses: tuple[Diagnosis, ...]

    @property
    def services(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(sorted({found.block.service for found in self.diagnoses if found.block}))

    @property
    def backends(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(sorted({found.block.backend for found in self.diagnoses if found.block}))

    @property
    def packets(self) -> int:
        return sum(found.megaflow.packets for found in self.diagnoses)


def group(diagnoses: Iterable[Diagnosis]) -> tuple[Group, ...]:
    """Largest first."""
    alike: dict[tuple[object, ...], list[Diagnosis]] = {}
    for found in diagnoses:
        key = (found.verdict, found.block is None, tuple((reason.cause, reason.text) for reason in found.reasons))
        alike.setdefault(key, []).append(found)
    groups = (Group(found[0].verdict, found[0].reasons, tuple(found)) for found in alike.values())
    return tuple(sorted(groups, key=lambda group: -len(group.diagnoses)))


def describe(found: Diagnosis) -> str:
    """The megaflow in one line: where it comes in, and the match of its block or of its own."""
    if found.block is not None:
        return render_match(found.block.flow.match)
    return ",".join(f"{key.name}({key.inner})" for key in found.megaflow.keys if key.name in _TELLING)


_TELLING = frozenset(("recirc_id", "in_port", "eth", "eth_type", "ipv4", "ipv6", "tcp", "udp", "sctp", "icmp", "encap"))


def to_json(diagnoses: Iterable[Diagnosis], *, in_hardware: int, notes: Iterable[str]) -> dict[str, object]:
    """`megaflows`: those not in hardware, in the order of the dump; `notes`: what could not be looked at."""
    return {
        "in_hardware": in_hardware,
        "megaflows": [_diagnosis(found) for found in diagnoses],
        "notes": list(notes),
    }


def _diagnosis(found: Diagnosis) -> dict[str, object]:
    megaflow: Megaflow = found.megaflow
    block = found.block
    return {
        "ufid": megaflow.ufid,
        "verdict": found.verdict.value,
        "service": block.service if block else None,
        "backend": block.backend if block else None,
        "block": render_match(block.flow.match) if block else None,
        "in_port": megaflow.in_port,
        "match": ",".join(f"{key.name}({key.inner})" for key in megaflow.keys),
        "actions": list(megaflow.actions),
        "packets": megaflow.packets,
        "reasons": [_reason(reason) for reason in found.reasons],
    }


def _reason(reason: Reason) -> dict[str, object]:
    return {
        "cause": reason.cause.value,
        "likelihood": reason.likelihood.name.lower(),
        "text": reason.text,
        "evidence": list(reason.evidence),
        "mend": list(reason.mend),
        "source": reason.source,
    }
