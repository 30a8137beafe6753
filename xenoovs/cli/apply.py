"""`xenoovs apply`: install the flows of a config or of a saved plan, all or nothing, and read them back."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.history import bridge_option, complete_history_number, find_history, history_of, is_installed
from xenoovs.cli.plan import flows_option, plan_document, show_plan, with_names
from xenoovs.compile.drain_progress import Draining
from xenoovs.compile.pipeline import PROGRAM
from xenoovs.dataclass import dataclass, replace, uncollected
from xenoovs.display import duration as shown_duration
from xenoovs.display import span
from xenoovs.engine.change import Change, PlanOptions, require_unchanged
from xenoovs.engine.engine import DrainRounds, Engine
from xenoovs.engine.history import History
from xenoovs.errors import NotConfirmed, XenoovsError, counted
from xenoovs.model.balancer import Balancer
from xenoovs.switch.api import Switch
from xenoovs.switch.management import ManagementSwitch
from xenoovs.terminal.agent_client import INSTEAD, check_agent, refuse_beside_agent
from xenoovs.terminal.command import user_name
from xenoovs.terminal.load import is_plan, load, resolved
from xenoovs.terminal.options import (
    bridge_command,
    hinting_partial,
    no_drain_option,
    partial_option,
    rebalance_option,
    rollback_option,
    time_option,
    yes_option,
)
from xenoovs.terminal.output import confirm, echo, echo_over, is_text, print_json
from xenoovs.terminal.reach import find_places, reach

if TYPE_CHECKING:
    from xenoovs.engine.saved import HistoryEntry


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The options of one call that say how the change is planned and made."""

    yes: bool
    dry_run: bool
    force: bool
    flows: bool
    confirm_s: float | None
    must_offload: bool
    within_s: float
    rebalance: bool
    partial: bool
    no_drain: bool


@bridge_command("apply")
@rollback_option(
    "Go back to entry NUMBER of `xenoovs history`; without it, undo the last change.",
    shell_complete=complete_history_number,
)
@bridge_option
@yes_option
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@flows_option
@click.option("--force", is_flag=True, help="Apply beside a running agent, which will revert the change.")
@time_option("--confirm", help="Roll back unless ENTER is pressed or `xenoovs confirm` is run within TIME (30s, 2m).")
@click.option(
    "--rollback-unless-offloaded",
    "must_offload",
    is_flag=True,
    help="Roll back if blocks with traffic are not in hardware; see --within.",
)
@time_option("--within", "10s", help="Time for --rollback-unless-offloaded.")
@rebalance_option
@partial_option
@no_drain_option
def apply_command(config: Path | None, *, rollback: int | None, bridge: str | None, **given: Any) -> None:
    """Install the flows of the config FILE on its bridge, or make the change of a plan that `plan --out` saved as FILE.

    Shows the plan, asks for confirmation (unless --yes), sends only the difference as one atomic OpenFlow bundle,
    reads the flows back and compares. Foreign flows are never touched. If the switch refuses the bundle, the bridge
    keeps all of its old flows. `xenoovs history` lists what was applied, and `xenoovs apply --rollback` goes back.

    A saved plan is applied without a question, and exactly as it was shown. It is refused if the bridge has changed
    since.

    --confirm and --rollback-unless-offloaded also roll back if this command is interrupted or killed, or its terminal
    is closed. Services that the change touched get exactly their old flows back; all other flows stay.

    If an agent reconciles the bridge, nothing is changed without --force: edit the config of the agent.

    With `drain: {mode: pin}`, open connections stay with their backend for a while. The command waits for the end of
    the drain and sends two more bundles: for new connections when Open vSwitch has revalidated its megaflows (two
    seconds or more), at the end for all clients. If it is interrupted, run it again to continue; a running `xenoovs
    agent` continues too.

    With --rollback every client gets the backend that it had after an earlier change: that of entry NUMBER, or of the
    newest one that differs from what the bridge has, which undoes the last change. No FILE is needed. The rollback is
    an entry of the history itself, so a second one undoes it. Beside an agent, give the agent the old config, which
    `xenoovs history NUMBER` prints.
    """
    how = ApplyOptions(**given)
    if config is None:
        if how.rebalance:
            raise click.UsageError("--rebalance does not go with --rollback.")
        roll_back(rollback or None, bridge, how)
        return
    if rollback is not None or bridge is not None:
        raise click.UsageError("--rollback takes no FILE; --bridge goes with --rollback.")
    if not is_plan(config):
        options = PlanOptions(rebalance=how.rebalance, drain=not how.no_drain, partial=how.partial)
        words = Words(f"apply {config}", str(config), "xenoovs apply FILE")
        Work.planned(resolved(load(config)), options, how, words).carry_out()
        return
    if how.rebalance or how.partial or how.no_drain:
        raise click.UsageError("--rebalance, --partial and --no-drain belong to `xenoovs plan --out`.")
    # Imported here, as it imports pydantic.
    from xenoovs.engine import saved

    plan = saved.load(config, saved.SavedPlan)
    words = Words(f"apply {config} ({plan.config.file})", plan.config.file, plan.again(config))
    work = Work.planned(resolved(plan.balancer()), plan.options(drain=plan.drain), replace(how, yes=True), words)
    plan.check(work.change, file=config)
    work.carry_out()


@dataclass(frozen=True, slots=True)
class Words:
    """The description of a change in the history and in messages. `again`: the command that plans again if the bridge
    has changed. `instead`: what to do if an agent reconciles the bridge."""

    command: str
    file: str
    again: str
    instead: str = INSTEAD


@dataclass(frozen=True, slots=True)
class Work:
    """A planned change, and what is needed to make it. `history`: None if there is no directory for it."""

    switch: ManagementSwitch
    engine: Engine
    balancer: Balancer
    options: PlanOptions
    change: Change
    history: History | None
    how: ApplyOptions
    words: Words

    @classmethod
    def planned(cls, balancer: Balancer, options: PlanOptions, how: ApplyOptions, words: Words) -> Work:
        """Plan a change of the bridge of a config. Raises what Engine.plan raises."""
        switch, bridge = reach(), balancer.uplinks.bridge
        engine = Engine(switch)
        with uncollected(), hinting_partial():
            change = engine.plan(balancer, options, now_s=time.monotonic())
            # It lives to the end of the command: no search for cycles goes through it.
            gc.freeze()
        history = history_of(bridge)
        return cls(switch, engine, balancer, options, with_names(change, history), history, how, words)

    @property
    def is_due(self) -> bool:
        """Whether the change must be made: it is not a dry run, and something differs."""
        return not self.how.dry_run and not self.change.difference.is_empty

    def carry_out(self, *, back_to: HistoryEntry | None = None) -> None:
        """Show the change, ask for confirmation, make it, write it into the history, and wait for its drains. If an
        agent reconciles the bridge, refuse the change before it is shown. `back_to`: the entry that it restores."""
        change, how = self.change, self.how
        if self.is_due and self.may_roll_back:
            refuse_beside_agent(change.bridge)
        elif self.is_due:
            check_agent(change.bridge, force=how.force, instead=self.words.instead)
        if is_text():
            if back_to is not None:
                echo(f"rollback to {back_to.number}: {back_to.command}, {back_to.local_time}, {back_to.user}")
                _show_overrides(change.bridge)
            show_plan(change, flows=how.flows)
        if self.is_due:
            confirm(f"Change {change.bridge}?", yes=how.yes, instead=", or --dry-run to see the plan")
        result = self._make()
        if not is_text():
            facts = {} if back_to is None else {"rollback_to": back_to.number}
            print_json({**plan_document(change), **result, **facts})

    def _make(self) -> dict[str, object]:
        """Make the change if it is due, write it into the history, and wait for its drains. Print what was done, as
        text. Return the keys of the JSON document besides the plan."""
        change, how = self.change, self.how
        later = replace(self.options, rebalance=False, decision=None)
        rounds = DrainRounds(self.engine, self.balancer, later, change)
        number = None
        if self.is_due:
            number = self._send_and_record(rounds)
            if is_text():
                recorded = "" if number is None else f"; number {number} in `xenoovs history`"
                mods = counted(change.difference.flow_mods, "flow-mod")
                echo(f"done: {mods} in one bundle, read back and verified{recorded}")
        elif not how.dry_run and self.history is not None and not self.history.numbers:
            # The state before the first change is an entry too, to go back to.
            with suppress(XenoovsError, OSError):
                entry = self._entry(self.history)
                self.history.record(entry)
                number = entry["number"]
        waited_s = wait_for_drains(rounds) if change.drains and not how.dry_run else 0.0
        if waited_s and is_text():
            echo(f"drained: all blocks have moved after {span(waited_s)}")
        return {"applied": self.is_due, "drained_s": round(waited_s, 3), "history": number}

    def _send_and_record(self, rounds: DrainRounds) -> int | None:
        """Make the change and return its number in the history; None if it could not be written there."""
        change, history = self.change, self.history
        reason = "there is no directory for it; set XDG_RUNTIME_DIR, or run as root"
        with nullcontext() if history is None else history.held(), ThreadPoolExecutor(max_workers=1) as maker:
            # The entry is made while the switch answers.
            making = None if history is None else maker.submit(self._entry, history)
            now = replace(change, dump=self.switch.dump_flow_text(change.bridge, only=PROGRAM))
            # The bridge may have changed while the user was asked, or while another command held it.
            require_unchanged(now, change.dump, since="the plan above was made", again=self.words.again)
            if self.may_roll_back:
                # It starts a guard by fork(2), which wants a process of one thread.
                maker.shutdown()
                self._apply_with_rollback(rounds)
            else:
                self.engine.apply(change)
            try:
                if history is not None and making is not None:
                    entry = making.result()
                    history.record(entry)
                    return int(entry["number"])
            except (XenoovsError, OSError) as error:
                reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        echo(
            f"warning: the change is made, but not written to the history: {reason}; `xenoovs apply --rollback` "
            "cannot go back to it",
            err=True,
        )
        return None

    def _apply_with_rollback(self, rounds: DrainRounds) -> None:
        """Apply the change, and roll it back unless it is confirmed in time, and offloaded in time, as the options say.

        A guard process rolls it back also when this process is killed.

        `rounds`: the drains of the change, which continue meanwhile. Raises NotConfirmed, NotOffloaded, RolledBack,
        SwitchError."""
        # Imported here: http.server imports ssl, which takes longer than all of `apply --help`.
        from xenoovs.agent.checkpoint import roll_back, take_checkpoint
        from xenoovs.agent.control.files import bound_socket
        from xenoovs.cli.apply_rollback import require_offload, rolled_back_on_error, wait_for_confirmation
        from xenoovs.switch.watchdog import RollbackWatchdog

        switch, change, how = self.switch, self.change, self.how
        # Checked again, as an agent may have started while the user was asked.
        refuse_beside_agent(change.bridge)
        before = take_checkpoint(switch, change.bridge)
        with bound_socket(find_places().waiting(change.bridge)) as sock:
            guard = RollbackWatchdog(lambda: roll_back(switch, before, services=change.touched))
            with rolled_back_on_error(guard):
                self.engine.apply(change)
                if how.must_offload:
                    echo(require_offload(self.balancer, switch, guard, within_s=how.within_s), err=True)
                if how.confirm_s is not None:
                    wait_for_confirmation(guard, sock, rounds, within_s=how.confirm_s)
                elif not guard.keep():
                    raise NotConfirmed(after_s=how.within_s)

    @property
    def may_roll_back(self) -> bool:
        return self.how.confirm_s is not None or self.how.must_offload

    def _entry(self, history: History) -> dict[str, Any]:
        """Return the next entry of the history, for the change. Raises FileUnusable."""
        words = self.words
        return history.entry(
            self.change, command=words.command, file=words.file, partial=self.options.partial, user=user_name()
        )


def wait_for_drains(rounds: DrainRounds) -> float:
    """Run all rounds, with the progress on the terminal. Return the seconds that they took."""
    begun_s = time.monotonic()
    try:
        while (next_s := rounds.next_s) is not None:
            echo_over(f"waiting for {'; '.join(map(_progress, rounds.drains))}")
            time.sleep(next_s)
            rounds.run_next()
    except KeyboardInterrupt:
        echo("\ninterrupted: open connections stay; `xenoovs apply` continues the drain", err=True)
        raise
    echo_over("")
    return time.monotonic() - begun_s


def _progress(drain: Draining) -> str:
    if drain.is_settling:
        return f"{drain.service}: Open vSwitch revalidates its megaflows"
    return f"{drain.service}: {shown_duration(drain.left_s)} left, {drain.connections} new connections"


# Rollback to an earlier change, with the same clients at the same backends.


def roll_back(number: int | None, bridge: str | None, how: ApplyOptions) -> None:
    """Go back to what an earlier `apply` installed on a bridge: every client gets the backend that it had then.
    `number`: of the entry; None for the newest that differs from the bridge. `bridge`: None for the only one that has a
    history."""
    history = find_history(bridge)
    number = _previous(history, reach()) if number is None else number
    entry = history.load(number)
    instead = f"write the config of `xenoovs history {number}` to the file of the agent, or stop the agent first"
    words = Words(f"rollback {number}", entry.config.file, f"xenoovs apply --rollback {number}", instead)
    options = entry.options(drain=not how.no_drain, partial=how.partial)
    Work.planned(resolved(entry.balancer()), options, how, words).carry_out(back_to=entry)


def _previous(history: History, switch: Switch) -> int:
    """Return the number of the newest entry that differs from the bridge. Raises click.UsageError if there is none;
    XenoovsError if the newest cannot be read, with a hint that names the next."""
    damaged: XenoovsError | None = None
    for number in reversed(history.numbers):
        try:
            entry = history.load(number)
        except XenoovsError as problem:
            damaged = damaged or problem
            continue
        if is_installed(switch, entry):
            continue
        if damaged is None:
            return number
        damaged.hint = f"`xenoovs apply --rollback {number}` goes back to {number}, the newest other entry"
        raise damaged
    if damaged is not None:
        damaged.hint = "no other entry can be gone back to; `xenoovs history` lists them"
        raise damaged
    if not history.numbers:
        raise click.UsageError(f"Bridge {history.bridge} has no history to go back to; `xenoovs apply` begins it.")
    raise click.UsageError(
        f"The history of bridge {history.bridge} has nothing else to go back to (`xenoovs history`); `xenoovs remove` "
        "removes all flows."
    )


def _show_overrides(bridge: str) -> None:
    """Print which drains, weights and maintenance of operators an agent will set again."""
    from xenoovs.agent.runtime_file import parse_runtime

    with suppress(OSError, ValueError):
        overrides = parse_runtime(find_places().runtime(bridge).read_bytes()).overrides
        names = ", ".join(f"{each.service}/{each.backend} {each.state}" for each in overrides)
        if names:
            echo(f"note: an agent that starts sets again what operators have set: {names}", err=True)
