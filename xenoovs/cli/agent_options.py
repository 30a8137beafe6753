"""The options of `xenoovs agent` and `xenoovs controller`, and which of them exclude or need each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from xenoovs.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one call."""

    configs: tuple[Path, ...]
    db: str | None
    lab: str | None
    log: str
    resync_s: float
    once: bool
    confirm_s: float | None
    control: Path | None
    api: str | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_ca: Path | None
    token_file: Path | None
    web: str | None
    xenoflow_api: str | None
    offload_interval_s: float
    metrics_blocks: bool
    allow_exec: bool
    fleet: str | None
    fleet_state: str | None
    dpu: str | None
    is_controller: bool

    def check(self) -> None:
        """Check options that exclude or need each other. Raises click.UsageError."""
        if "-" in map(str, self.configs):
            raise click.UsageError("The agent reads its config again when it changes: give a file, not standard input.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key go together.")
        is_served = any(where is not None for _, where in self.served)
        if self.token_file and not is_served:
            raise click.UsageError("--token-file goes with --api, --web or --xenoflow-api.")
        if self.tls_cert and not is_served and not self.is_controller and self.fleet is None:
            raise click.UsageError(
                "--tls-cert and --tls-key go with --api, --web, --xenoflow-api, --fleet or `xenoovs controller`."
            )
        if self.tls_ca and not self.is_controller and self.fleet is None:
            raise click.UsageError("--tls-ca goes with --fleet or `xenoovs controller`.")
        if self.tls_cert and not self.tls_ca and not is_served and not self.is_controller:
            raise click.UsageError("--fleet with TLS needs all of --tls-key, --tls-cert and --tls-ca.")
        self._check_fleet()

    def _check_fleet(self) -> None:
        if self.fleet is None:
            if self.fleet_state is not None or self.dpu is not None:
                raise click.UsageError("--fleet-state and --dpu go with --fleet.")
            return
        from xenoovs.store.view import is_name

        if self.dpu is not None and not is_name(self.dpu):
            raise click.UsageError(
                f"--dpu {self.dpu!r}: `xenoovs fleet add-dpu` takes letters, digits, `.`, `-` and `_`, at most 63 "
                "characters, such as rack7-dpu1."
            )
        if len(self.configs) > 1:
            raise click.UsageError("An agent of a fleet has one bridge: give one FILE, and start an agent for each.")
        if self.once or self.confirm_s is not None:
            option = "--once" if self.once else "--confirm"
            raise click.UsageError(
                f"{option} does not go with --fleet: the store decides, also after this agent ended."
            )

    def check_several(self, bridges: int) -> None:
        """Check options that are for one bridge. Raises click.UsageError."""
        if bridges > 1 and self.control is not None:
            raise click.UsageError("--control names one socket, but each of several bridges has its own.")
        if bridges > 1 and self.xenoflow_api is not None:
            raise click.UsageError("--xenoflow-api is for one bridge: its clients know one list of backends.")

    @property
    def served(self) -> tuple[tuple[str, str | None], ...]:
        """The options that open a TCP port, with their values."""
        return ("--api", self.api), ("--web", self.web), ("--xenoflow-api", self.xenoflow_api)


def options_of(given: dict[str, Any], *, is_controller: bool) -> Options:
    """Return the options of one call, from the values of its parameters."""
    names = Options.__dataclass_fields__.keys() - {"is_controller"}
    return Options(**{name: given[name] for name in names}, is_controller=is_controller)
