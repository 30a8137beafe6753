"""Network namespaces and what is in them, by ip(8) and ip-netns(8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xenoovs.lab.names import is_namespace_of
from xenoovs.switch.process import Completed, run, try_run


@dataclass(frozen=True, slots=True)
class Netns:
    """Runs ip(8) with the marks of a lab in the environment, so that a crash leaves no unknown process."""

    marks: Mapping[str, str] = field(default_factory=dict, hash=False)

    def batch(self, lines: Iterable[str], *, namespace: str | None = None) -> None:
        """Several commands of ip(8) in one process. Raises CommandFailed at the first that fails."""
        text = "".join(f"{line}\n" for line in lines)
        if text:
            run(["ip", *_inside(namespace), "-batch", "-"], stdin=text, env=self.marks)

    def execute(
        self, namespace: str, argv: Iterable[str], *, stdin: str | None = None, timeout_s: float = 30.0
    ) -> Completed:
        """Run a program inside a namespace."""
        return run(["ip", "netns", "exec", namespace, *argv], stdin=stdin, timeout_s=timeout_s, env=self.marks)

    def write_sysctls(self, namespace: str, paths: Iterable[str], *, value: int) -> None:
        """Set kernel parameters below /proc/sys/net of a namespace, without needing sysctl(8)."""
        self.execute(namespace, ["tee", *(f"/proc/sys/net/{path}" for path in paths)], stdin=f"{value}\n")


def namespaces_of(name: str) -> tuple[str, ...]:
    """The namespaces of lab `name` that exist, complete or not, sorted."""
    listed = run(["ip", "netns", "list"]).stdout.splitlines()
    names = (line.split()[0] for line in listed if line.split())
    return tuple(sorted(namespace for namespace in names if is_namespace_of(namespace, name)))


def processes_in(namespace: str) -> tuple[int, ...]:
    """Processes in a namespace; none when it is gone or half made."""
    return tuple(int(word) for word in try_run(["ip", "netns", "pids", namespace]).stdout.split())


def delete_namespace(namespace: str) -> None:
    """Remove a namespace and with it every device inside; nothing when it is gone."""
    try_run(["ip", "netns", "del", namespace])


def _inside(namespace: str | None) -> list[str]:
    return ["-n", namespace] if namespace else []
