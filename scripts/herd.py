"""Simulate many senders that choose paths by the agent's own decisions, and draw how much goes over each path.

A fluid model: every sender splits its traffic into 64 blocks over four paths, which all senders share. A path has a
queue of 20 ms and drops what does not fit. An elephant of 1.2 times a link is on path 1 for a while. Each sender probes
every 10 ms and decides every 50 ms, at a phase of its own, by xenoovs.agent.paths. Beside it: plain ECMP, and the same
senders if each put all blocks on the best path at each decision.

    python scripts/herd.py [--senders 1000] [--seconds 24] [--load 0.6] [--out docs/explanation/herd.svg]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from random import Random

from xenoovs.agent.paths.decide import PathVerdict, Placement, RemoteVerdict, after_shifts, judge, moved, shifts
from xenoovs.agent.paths.score import PathRecord, Record

PATHS, BLOCKS = 4, 64
BUFFER_S, MARGIN_US = 0.02, 5_000.0
STEP_S, ROUNDS_PER_DECISION = 0.01, 5
ELEPHANT, ELEPHANT_S = 1.2, (4.0, 14.0)
NOISE_US = 100.0


class Sender:
    """One sender, by the decisions of the agent."""

    def __init__(self, number: int) -> None:
        self.chance = Random(number)
        self.record, self.verdict = Record((PathRecord(),) * PATHS), RemoteVerdict((PathVerdict(),) * PATHS)
        home = tuple(block % PATHS for block in range(BLOCKS))
        self.placement, self.moves = Placement(home, home, (True,) * PATHS), 0

    def probe(self, delays_us: list[float]) -> None:
        answers = [delay + self.chance.uniform(0, NOISE_US) for delay in delays_us]
        self.record = self.record.after(answers, is_calm=self.verdict.is_calm)

    def decide(self, now_s: float) -> None:
        self.verdict = judge(self.verdict, self.record, margin_us=MARGIN_US, now_s=now_s)
        found = shifts(self.verdict, self.record, self.placement, self.chance, now_s=now_s)
        if found:
            self.verdict = moved(self.verdict, found, now_s)
            owners = after_shifts(self.placement.owners, found)
            self.placement = Placement(owners, self.placement.home, self.placement.usable)
            self.moves += len(found)

    def counts(self) -> list[int]:
        return [self.placement.owners.count(path) for path in range(PATHS)]


class Best(Sender):
    """The same, with all blocks on the best path."""

    def decide(self, now_s: float) -> None:
        scores = [path.score for path in self.record.paths]
        if None not in scores:
            best = min(range(PATHS), key=lambda path: scores[path] or 0.0)
            self.moves += BLOCKS - self.counts()[best]
            self.placement = Placement((best,) * BLOCKS, self.placement.home, self.placement.usable)


class Ecmp(Sender):
    """The same, without any choice."""

    def decide(self, now_s: float) -> None:
        return


def simulate(kind: Callable[[int], Sender], senders: int, seconds: float, load: float) -> dict[str, object]:
    """Return the load of each path over time (1: a link), the part of our traffic that was lost, and the moves."""
    all_senders = [kind(number) for number in range(senders)]
    counts = [sender.counts() for sender in all_senders]
    unit = load * PATHS / (senders * BLOCKS)
    queues_s, lost, sent = [0.0] * PATHS, 0.0, 0.0
    rows: list[tuple[float, list[float]]] = []
    totals = [sum(count[path] for count in counts) for path in range(PATHS)]
    for step in range(round(seconds / STEP_S)):
        now_s = step * STEP_S
        ours = [total * unit for total in totals]
        elephant = ELEPHANT if ELEPHANT_S[0] <= now_s < ELEPHANT_S[1] else 0.0
        for path in range(PATHS):
            arriving = ours[path] + (elephant if path == 0 else 0.0)
            wanted = queues_s[path] + (arriving - 1.0) * STEP_S
            queues_s[path] = min(BUFFER_S, max(0.0, wanted))
            lost += max(0.0, wanted - BUFFER_S) * (ours[path] / arriving if arriving else 0.0)
            sent += ours[path] * STEP_S
        delays_us = [queue * 1e6 for queue in queues_s]
        for number, sender in enumerate(all_senders):
            sender.probe(delays_us)
            if (step + number) % ROUNDS_PER_DECISION == 0:
                sender.decide(now_s)
                before, counts[number] = counts[number], sender.counts()
                if before != counts[number]:
                    totals = [t - b + n for t, b, n in zip(totals, before, counts[number], strict=True)]
        if step % 5 == 0:
            rows.append((now_s, ours))
    moves = sum(sender.moves for sender in all_senders) / senders
    return {"rows": rows, "lost": lost / sent, "moves": moves}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--senders", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=24.0)
    parser.add_argument("--load", type=float, default=0.6)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    kinds = {"plain ECMP": Ecmp, "always the best path": Best, "blocks with a margin": Sender}
    found = {}
    for name, kind in kinds.items():
        found[name] = simulate(kind, options.senders, options.seconds, options.load)
        print(f"{name}: {found[name]['lost']:.2%} lost, {found[name]['moves']:.1f} moves a sender", flush=True)
    if options.out is not None:
        draw(found, options)


def draw(found: dict[str, dict[str, object]], options: argparse.Namespace) -> None:
    """Draw the load of each path over time, a row for each design."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "xenoovs"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(found), 1, figsize=(8, 7), sharex=True, sharey=True, layout="constrained")
    colours = ("#d55e00", "#0072b2", "#009e73", "#cc79a7")
    for axis, (name, each) in zip(axes, found.items(), strict=True):
        rows = each["rows"]
        assert isinstance(rows, list)
        for path in range(PATHS):
            loads = [load[path] for _, load in rows]
            axis.plot([at for at, _ in rows], loads, color=colours[path], label=f"path {path + 1}", linewidth=1)
        axis.axvspan(*ELEPHANT_S, color="#eeeeee", zorder=0)
        axis.axhline(1, color="black", linewidth=0.6, linestyle=":")
        axis.set_title(f"{name}: {each['lost']:.2%} lost, {each['moves']:.0f} moves a sender", fontsize=10, loc="left")
        axis.set_ylabel("our load, 1: a link")
    axes[0].legend(fontsize=8, ncols=4, frameon=False)
    axes[-1].set_xlabel("seconds; grey: an elephant of 1.2 x link on path 1")
    figure.savefig(options.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
