"""Generate the pages of docs/reference from the code: `make docs`. A test compares them with the committed ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.reference_errors import errors_page
from scripts.reference_metrics import metrics_page
from scripts.reference_offload import offload_page
from scripts.reference_pages import GENERATED, cli_page, config_page, pipeline_page
from xenoovs.agent.control.handlers import ROUTES
from xenoovs.agent.control.schemas import openapi_document

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"


def pages() -> dict[str, str]:
    """Return the text of every generated page by its file name."""
    return {
        "cli.md": cli_page(),
        "config.md": config_page(),
        "pipeline.md": pipeline_page(),
        "offload.md": offload_page(GENERATED),
        "errors.md": errors_page(GENERATED),
        "metrics.md": metrics_page(GENERATED),
        "openapi.json": json.dumps(openapi_document(ROUTES), indent=2) + "\n",
    }


def main() -> None:
    """Write all pages."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text)


if __name__ == "__main__":
    main()
