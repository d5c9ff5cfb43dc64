"""The command line of kmufs-stream: parse, one call of the library, show."""

from kmufs_stream_cli.app import main

__all__ = ["main"]
