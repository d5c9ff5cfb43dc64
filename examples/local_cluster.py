"""Select on the worker processes of this machine.

kmufs-stream demo && python examples/local_cluster.py
"""

import sys

try:
    from distributed import Client

    from kmufs_stream import select
except ModuleNotFoundError as missing:
    print(f'{missing}: pip install ".[cluster]"', file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":  # worker processes import this file
    size = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "2GB"}
    with Client(**size, dashboard_address=None):
        result = select("kmufs-demo/digits.zarr", k=10, h=20, out="chosen.zarr", overwrite=True)
        print(result)
