"""`make check`: no room of `xenoovs/` has more lines than pyproject.toml allows, and docs/ not too many words.

`--all` prints every room, and the words.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_MOST_WORDS = 59_500
"""In all pages of docs/, also the generated ones."""


def budgets() -> dict[str, int]:
    """Return the most lines that each room may have. Python 3.10 has no reader of TOML."""
    section = (_ROOT / "pyproject.toml").read_text().partition("[tool.xenoovs.lines]\n")[2].partition("\n[")[0]
    return {name: int(count) for name, count in re.findall(r"^(\w+) = (\d+)$", section, re.MULTILINE)}


def lines() -> dict[str, int]:
    """Return the lines of each room; a module beside the rooms is one."""
    rooms = {path.stem: path for path in (_ROOT / "xenoovs").iterdir() if path.suffix == ".py" or path.is_dir()}
    files = {name: [*path.rglob("*.py")] if path.is_dir() else [path] for name, path in rooms.items()}
    counts = {name: sum(len(file.read_bytes().splitlines()) for file in found) for name, found in files.items()}
    return {name: count for name, count in sorted(counts.items()) if count and not name.startswith("__")}


def words() -> int:
    """Return the words of docs/: what blanks separate and has a letter or a digit, so no bars of tables and bullets."""
    pages = (path.read_text(encoding="utf-8") for path in (_ROOT / "docs").rglob("*.md"))
    return sum(any(map(str.isalnum, word)) for page in pages for word in page.split())


def main() -> int:
    """Print the rooms with more lines than they may have, and return the exit status."""
    allowed, found = budgets(), lines()
    over = [name for name in found if found[name] > allowed.get(name, 0)]
    for name in found if "--all" in sys.argv else over:
        print(f"{name:<12} {found[name]:>6} of {allowed.get(name, 0):>6} lines")
    if over:
        print(
            "take out as much as you put in; another number in pyproject.toml is a commit of its own, with the reason"
        )
    if (count := words()) > _MOST_WORDS or "--all" in sys.argv:
        print(f"{'docs':<12} {count:>6} of {_MOST_WORDS:>6} words")
    return 1 if over or count > _MOST_WORDS else 0


if __name__ == "__main__":
    sys.exit(main())
