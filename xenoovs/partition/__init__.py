"""The mathematics of splitting clients over weighted backends with masked matches. Numbers in, numbers out."""
