"""Select on the jobs of a SLURM cluster: pip install dask-jobqueue."""

import shutil
import sys

try:
    from dask_jobqueue import SLURMCluster
    from distributed import Client

    from kmufs_stream import select
except ModuleNotFoundError as missing:
    print(f'{missing}: pip install ".[cluster]" dask-jobqueue', file=sys.stderr)
    sys.exit(2)

if shutil.which("sbatch") is None:
    sys.exit("There is no sbatch here: run this where jobs of SLURM are submitted.")
with (
    SLURMCluster(cores=8, processes=8, memory="32GB", walltime="04:00:00") as cluster,
    Client(cluster) as client,
):
    cluster.scale(jobs=10)  # 80 workers of one thread and 4 GB
    client.wait_for_workers(8)  # the others join when their jobs begin
    # Jobs end and clients are killed: with resume=True the same script goes on where it was.
    select("/scratch/data.zarr", k=10, h=100, out="/scratch/chosen.zarr", resume=True)
