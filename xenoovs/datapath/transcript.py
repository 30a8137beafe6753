"""A dump that was copied from a terminal: without its prompts, and with what they and the actions show.

Without `-m`, Open vSwitch prints neither `offloaded:` nor `dp:`. A command line above the dump that has `type=` shows
them, and so do actions that no NIC forwards. Both are added to the lines as `-m` prints them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from xenoovs.datapath.parse import rejoin_lines

_COMMAND = "flow-dump from command:"
"""Replaces a command line. The parser skips lines that begin so, like headers of Open vSwitch."""

_DUMP = re.compile(r"\bovs-(?:appctl|dpctl)\b.*\b(?:dpctl/)?dump-flows\b(?P<options>.*)", re.ASCII)
_PROMPT = re.compile(
    r"(?:\[[^\]]{1,80}\]|[\w.-]{1,64}@[\w.-]{1,64}(?::[^\s#$]{0,80})?(?: [^\s#$]{1,80})?)\s?[#$%]"
    r"(?:\s+(?P<command>.*))?"
)
"""`[root@host ~]# COMMAND`, `user@host:~$ COMMAND`."""
_BARE_PROMPT = re.compile(r"[#$]\s*(?P<command>.*)")
_LOG = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z\|[0-9]+\|")
"""What the tools of Open vSwitch print on stderr (lib/vlog.c)."""

_RULER = re.compile(r"[-=]{2,}|(?:`{3}|~{3}).*|\[?\.{2,3}\]?", re.ASCII)
"""Between parts of a copied text: `--` of grep(1), fences of Markdown, an ellipsis."""

_TYPE = re.compile(r"\btype=([a-z,-]+)")
_LAYERS = {
    "offloaded": "offloaded:yes",
    "dpdk": "offloaded:yes, dp:dpdk",
    "partially-offloaded": "offloaded:partial, dp:ovs",
    "ovs": "dp:ovs",
    "non-offloaded": "dp:non-offloaded",
}
"""A single `type=` -> what it says about each megaflow (flow_passes_type_filter of lib/dpctl.c). A list is a union, and
`tc` lists rules in hardware and rules that are not."""
_SELECTING = re.compile(r"\btype=(?!all\b)|\bfilter=|\|")
"""Parts of a command line that leave megaflows out: options, and a pipe to grep(1) and the like."""

_SLOW_PATH = re.compile(r" actions:(?:.*,)?userspace\(|check_pkt_len\(.*userspace\(")
_STATED = re.compile(r", (?:offloaded|dp):[a-z]")


class Transcript:
    """The lines of a dump, completed. Attributes are right after the last line.

    Attributes:
        dumps: number of command lines that made a dump.
        is_complete: whether the command lines made the dump without `type=`, `filter=` or a pipe.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.dumps = 0
        self.is_complete = False
        self._lines = lines

    def __iter__(self) -> Iterator[str]:
        state = ""
        for line in rejoin_lines(self._without_prompts()):
            if line.startswith(_COMMAND):
                state = self._begin(line.removeprefix(_COMMAND))
            yield _completed(line, state)

    def remarks(self) -> Iterator[str]:
        """Yield what a reader of the findings has to know about the file."""
        if self.dumps > 1:
            yield f"the file has {self.dumps} dumps, and megaflows that are in several count several times: give one"

    def _begin(self, options: str) -> str:
        """Return what the options of a dump say about each of its megaflows."""
        self.dumps += 1
        self.is_complete = not _SELECTING.search(options) and (self.is_complete or self.dumps == 1)
        types = _TYPE.search(options)
        return _LAYERS.get(types[1], "") if types else ""

    def _without_prompts(self) -> Iterator[str]:
        """Yield the lines; empty ones in place of prompts, rulers and the output of other commands."""
        is_foreign = False
        for line in self._lines:
            text = line.strip()
            if not text or " actions:" in text or ", packets:" in text:
                yield "" if is_foreign and not _is_megaflow(text) else line
                continue
            command = _command(text)
            if _RULER.fullmatch(text):
                yield ""
            elif command is None:
                yield "" if is_foreign or _LOG.match(text) else line
            elif found := _DUMP.search(command):
                is_foreign = False
                yield f"{_COMMAND}{found['options']}\n"
            else:
                is_foreign = is_foreign or not text.startswith("#")
                yield ""


def _command(text: str) -> str | None:
    """Return the command of a line with a prompt or of a dump; None: the line is no command line."""
    prompt = _PROMPT.fullmatch(text) or _BARE_PROMPT.fullmatch(text)
    if prompt is not None:
        return prompt["command"] or ""
    return text if _DUMP.match(text.removeprefix("sudo ").removeprefix("+ ")) else None


def _is_megaflow(text: str) -> bool:
    return " actions:" in text and ", packets:" in text


def _completed(line: str, state: str) -> str:
    """Return a line with what -m would print, where that is known. `state`: as the command line shows it."""
    if " actions:" not in line or _STATED.search(line):
        return line
    known = "dp:ovs" if _SLOW_PATH.search(line) else state
    return line.replace(", actions:", f", {known}, actions:", 1) if known else line
