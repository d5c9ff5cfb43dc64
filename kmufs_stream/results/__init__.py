"""Results: selections, sweeps, and the files they are written to and read from."""
