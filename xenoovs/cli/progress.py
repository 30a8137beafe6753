"""A progress bar on a terminal, nothing when nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A function to be called with what is being done, steps done, steps in all. Draws on stderr."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.fields[title]}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", title=title, total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
