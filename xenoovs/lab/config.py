"""The config of a lab: the one that the lab was built for, or the one of the last agent that ran in it."""

from __future__ import annotations

from pathlib import Path

from xenoovs.lab.lab import CONFIG, CONFIG_SOURCE, Lab, sole_owner, write_whole
from xenoovs.lab.probing import in_lab
from xenoovs.lab.servers import follow_config
from xenoovs.log import warn
from xenoovs.model.balancer import Balancer
from xenoovs.model.include import ConfigSources


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


def write_config(directory: Path, balancer: Balancer) -> None:
    """Write the config of a lab into its directory, atomically."""
    from xenoovs.model.emit import render_config

    write_whole(directory / CONFIG, render_config(balancer))


def link_config(directory: Path, config: Path) -> None:
    """Link the lab's config file into the lab's directory, atomically. Commands without FILE use the link."""
    draft = directory / f"{CONFIG_SOURCE}.new"
    draft.unlink(missing_ok=True)
    draft.symlink_to(config.resolve())
    draft.replace(directory / CONFIG_SOURCE)


def config_of(lab: Lab) -> Balancer:
    """Return the config of a lab. Raises ConfigError, ConfigUnreadable."""
    from xenoovs.model.load import load_config

    return in_lab(load_config(lab.directory / CONFIG, for_lab=True), lab.topology)
