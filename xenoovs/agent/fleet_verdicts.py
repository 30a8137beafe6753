"""When a DPU reports to its fleet where its megaflows run: with each periodic report, and soon while a wave waits."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from xenoovs.agent.offload import OffloadSample
from xenoovs.datapath.megaflow import Verdict
from xenoovs.fleet.rollout import TOLERANCE, hw_share
from xenoovs.judge.findings import OffloadFindings
from xenoovs.store.view import DpuStatus


def verdict_counts(findings: OffloadFindings) -> dict[str, int]:
    """Return the number of megaflows by verdict: those of blocks and of answers that the NIC should forward.

    A block without a megaflow counts as one that is `ABSENT`.
    """
    counts = Counter[str]()
    for block in findings.nic_blocks:
        counts.update({verdict.value: count for verdict, count in block.verdicts} or {Verdict.ABSENT.value: 1})
    for answers in findings.nic_answers:
        counts[answers.verdict.value] += answers.megaflows
    return {name: count for name, count in sorted(counts.items()) if count}


class VerdictReports:
    """Selects which of the last two offload samples a DPU reports."""

    def __init__(self) -> None:
        self._samples = deque[tuple[float, Mapping[str, int]]](maxlen=2)

    def add(self, sample: OffloadSample) -> None:
        """Take the next sample; one without megaflows, as by OpenFlow alone, does not count."""
        if sample.findings is not None and sample.sampled_s is not None:
            self._samples.append((sample.sampled_s, verdict_counts(sample.findings)))

    def reported(self, status: DpuStatus, *, is_due: bool, ack: int | None) -> DpuStatus:
        """Return a status with the newest verdicts, if they are to be reported.

        A new megaflow is in software for a moment, so the better one of two samples counts. The first one of an agent
        is reported at once.

        Args:
            status: What the DPU is about to report.
            is_due: Whether a periodic report is due.
            ack: The generation that the wave of this DPU waits for; None: none.
        """
        since_s = status.applied_ms / 1000
        fresh = [verdicts for sampled_s, verdicts in reversed(self._samples) if sampled_s >= since_s]
        if not fresh:
            return status
        best = max(fresh, key=_share)
        is_awaited = ack is not None and status.applied >= ack and (status.sampled < ack or _differs(best, status))
        is_news = is_due or is_awaited or not status.sampled
        return replace(status, verdicts=best, sampled=status.applied) if is_news else status


def _share(verdicts: Mapping[str, int]) -> Fraction:
    share = hw_share(verdicts)
    return Fraction(1) if share is None else share


def _differs(verdicts: Mapping[str, int], status: DpuStatus) -> bool:
    now, before = hw_share(verdicts), hw_share(status.verdicts)
    if now is None or before is None:
        return now is not before
    return abs(now - before) > TOLERANCE
