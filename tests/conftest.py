"""Beside the tests' own helpers, so that pytest makes them importable from every folder here."""
