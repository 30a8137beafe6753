"""What was read and decided about the views before, so that of the next view only what differs is read and decided."""

from __future__ import annotations

from xenoovs.fleet.services import ConfigReader, ResultMemory, ViewReader


class ConfigMemory:
    """What was read and decided about one config.

    Attributes:
        config: Reads the config with its overrides.
        stored: Reads what the store has for it: mostly the same services.
        services: The results for each of its services.
    """

    def __init__(self) -> None:
        self.config, self.services = ConfigReader(), ResultMemory()
        self.stored = ViewReader(ConfigReader(self.config))


class FleetMemory:
    """The same for the config in use, and for that of a roll-out. It saves time, and changes no result."""

    def __init__(self) -> None:
        self.in_use, self.rolled_out = ConfigMemory(), ConfigMemory()
