"""`make demo-fleet`: a whole fleet on one machine, and what its clients notice when parts of it die."""
