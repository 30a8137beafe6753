"""`regex` is re.compile that compiles at the first use: of 260, a command uses a tenth (docs/adr/README.md, 31)."""

from __future__ import annotations

import re
from re import ASCII, DOTALL, IGNORECASE, MULTILINE
from typing import TYPE_CHECKING, Any

__all__ = ["ASCII", "DOTALL", "IGNORECASE", "MULTILINE", "regex"]

if TYPE_CHECKING:
    from re import compile as regex
else:

    class regex:  # noqa: N801 (it stands for a function)
        """Has the methods of re.Pattern; each is looked up once."""

        def __init__(self, text: str | bytes, flags: int = 0) -> None:
            self._words = text, flags

        def __getattr__(self, name: str) -> Any:
            found = getattr(re.compile(*self._words), name)
            setattr(self, name, found)
            return found
