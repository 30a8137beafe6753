"""The config file of a running agent. It may change at any time. While it is invalid, the last good config stays.

A config is good once the bridge has it. Until then it is a candidate: valid, but its ports may be missing or its
weights impossible.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from xenoovs.dataclass import dataclass, field
from xenoovs.decision.decision import Stored
from xenoovs.errors import ConfigError, ConfigUnreadable, OtherBridge, XenoovsError, problem_of
from xenoovs.model.balancer import Balancer
from xenoovs.model.include import ConfigSources
from xenoovs.model.load import parse_config
from xenoovs.store.view import FleetView

DIGEST_DIGITS = 12
ConfigParser = Callable[[bytes, ConfigSources], Balancer]
"""Parses the text of a config. Files that it includes are read through the sources."""


@dataclass(frozen=True, slots=True)
class ConfigVersion:
    """A valid config. `digest`: the start of the SHA-256 of its text, with that of the files that it includes. `view`:
    the view of the store that both are from; None if the config is a file alone. `commit_at_s`: when the bridge must
    change, on the clock of `time.monotonic()`; None if at once."""

    balancer: Balancer
    digest: str
    stored: Stored = field(default_factory=dict)
    view: FleetView | None = None
    commit_at_s: float | None = None


_TURN = Lock()
"""One thread parses at a time. In parallel all would end late, and the first bridge would wait for all files."""


def _parse(text: bytes, sources: ConfigSources) -> Balancer:
    return parse_config(text, file=str(sources.main), sources=sources)


def parse_bound(text: bytes, sources: ConfigSources, *, bridge: str) -> Balancer:
    """Parse a config as a ConfigParser does, and require that the label of its bridge is `bridge`. Raises ConfigError,
    OtherBridge."""
    balancer = _parse(text, sources)
    if (label := balancer.uplinks.label) != bridge:
        raise OtherBridge(mine=bridge, wanted=label)
    return balancer


class ConfigFile:
    """A config file with the files it includes. `candidate`: a valid config that no round has applied yet."""

    def __init__(self, path: Path, parse: ConfigParser = _parse) -> None:
        """Read the first good config from the file. Raises ConfigError, ConfigUnreadable."""
        self.path = path
        self._parse = parse
        self._sources = ConfigSources(path)
        self.good = self._read()
        self._newest = self.good.digest
        self.candidate: ConfigVersion | None = None
        self.problem: XenoovsError | None = None

    @property
    def is_touched(self) -> bool:
        """Return whether a file has changed since the last `poll`, by one stat(2) for each file."""
        return self._sources.is_touched

    def poll(self, *, always: bool = False) -> bool:
        """Read the file if it was touched. If its text is new, set `candidate` or `problem`, and return True.

        Reading may take seconds. `always`: read an untouched file too, and try a refused text again.
        """
        if not always and not self.is_touched:
            return False
        before, self._sources = self._newest, ConfigSources(self.path)
        # A refused text may have become valid without a change: a link may lead to another file now.
        is_retried = self.problem is not None and (always or isinstance(self.problem, ConfigError))
        try:
            version = self._read()
        except Exception as error:  # noqa: BLE001 - the last good config stays, whatever is wrong with this one.
            problem = problem_of(error)
            self._newest = "" if isinstance(problem, ConfigUnreadable) else self._digest
            if self._newest == before and not always and str(problem) == str(self.problem):
                return False
            self.candidate, self.problem = None, problem
            return True
        self._newest = version.digest
        if self._newest == before and not is_retried:
            return False
        self.candidate, self.problem = version, None
        return True

    @property
    def _digest(self) -> str:
        return self._sources.digest[:DIGEST_DIGITS]

    def _read(self) -> ConfigVersion:
        """Raises ConfigError, ConfigUnreadable."""
        text = self._sources.read(self.path)
        with _TURN:
            return ConfigVersion(self._parse(text, self._sources), self._digest)

    def accept(self) -> None:
        """Make the candidate the good config."""
        if self.candidate is not None:
            self.good, self.candidate, self.problem = self.candidate, None, None

    def refuse(self, problem: XenoovsError) -> bool:
        """Keep the candidate for a later attempt. Return whether the problem is new."""
        is_news = str(problem) != str(self.problem or "")
        self.problem = problem
        return is_news

    def roll_back(self, good: ConfigVersion, problem: XenoovsError) -> None:
        """Make an earlier config the good one again. `problem`: why the accepted config was rolled back."""
        self.good, self.candidate, self.problem = good, None, problem

    @property
    def newer(self) -> str:
        """The digest of a newer text that is not in use; empty if there is none, or if it cannot be read."""
        return self._newest if self.problem is not None or self.candidate is not None else ""

    @property
    def balancers(self) -> tuple[Balancer, ...]:
        """The config in use, and the candidate."""
        return (self.balancer,) if self.candidate is None else (self.balancer, self.candidate.balancer)

    @property
    def balancer(self) -> Balancer:
        """The last good config."""
        return self.good.balancer

    @property
    def digest(self) -> str:
        return self.good.digest
