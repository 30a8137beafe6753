"""Health probes: one request to one backend, with a hard deadline."""
