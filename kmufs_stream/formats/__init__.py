"""Formats that are turned into Zarr, one per module, each read by a library that knows it."""
