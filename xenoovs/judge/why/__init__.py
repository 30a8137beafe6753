"""Why a megaflow is not in hardware: one module for each kind of evidence."""
