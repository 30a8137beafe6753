"""Health probes: one question to one backend, one answer in words, by a hard deadline."""
