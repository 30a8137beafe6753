"""The benchmark; see __main__."""
