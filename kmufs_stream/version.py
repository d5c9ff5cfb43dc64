"""The version of kmufs-stream."""

__version__ = "0.1.0"
