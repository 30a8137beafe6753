"""What libyaml complains about, said with the cause and the remedy."""

from __future__ import annotations

import yaml

from xenoovs.errors import Finding

# (part of libyaml's problem text, what to do); libyaml 0.2.5, src/scanner.c and src/parser.c.
_REMEDIES = (
    ("cannot start any token", "indent with spaces, never tabs, and put text that starts with @ ` or % in quotes"),
    ("mapping values are not allowed", "put text with a colon and a space in quotes, and check the indentation above"),
    ("found unexpected ':'", "put text that ends in a colon, such as the address 2001:db8::, in quotes"),
    ("could not find expected ':'", "a key needs a colon and a space after it, as in `name: value`"),
    ("did not find expected key", "check the indentation, and the quotes and brackets above"),
    ("did not find expected '-' indicator", "list items that belong together start in one column"),
    ("did not find expected ',' or", "close the bracket, or put a comma between the items"),
    ("unexpected end of stream", "close the quotes that were opened above"),
    ("undefined alias", "aliases are not supported; write the value out"),
)


def explain_yaml_error(error: yaml.YAMLError, *, file: str) -> Finding:
    """One finding at the place libyaml names."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    remedy = next((text for part, text in _REMEDIES if part in problem), "check the line and the one above it")
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    return Finding(file, line, column, "", f"not valid YAML: {problem}; {remedy}")
