"""Why a megaflow is not in hardware: one file for each witness, and the reasons that they give."""
