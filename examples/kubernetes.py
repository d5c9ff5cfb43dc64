"""Select on the pods of a Kubernetes cluster: pip install dask-kubernetes.

The image holds kmufs-stream with its cluster extra. The pods mount the volume of the data, and so
does the machine, or pod, that runs this: the operator's custom resources must be installed.
"""

import os
import sys
from pathlib import Path

try:
    from dask_kubernetes.operator import KubeCluster, make_cluster_spec
    from distributed import Client

    from kmufs_stream import select
except ModuleNotFoundError as missing:
    print(f'{missing}: pip install ".[cluster]" dask-kubernetes', file=sys.stderr)
    sys.exit(2)

config = Path(os.environ.get("KUBECONFIG", "~/.kube/config")).expanduser()
if not (config.exists() or "KUBERNETES_SERVICE_HOST" in os.environ):
    sys.exit(f"There is no {config}: run this where kubectl reaches a cluster, or in a pod.")
spec = make_cluster_spec(
    name="kmufs",
    image="registry.example.org/kmufs-stream",
    n_workers=20,
    resources={"limits": {"cpu": "1", "memory": "4Gi"}},
)
pod = spec["spec"]["worker"]["spec"]
pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]

with KubeCluster(custom_cluster_spec=spec) as cluster, Client(cluster) as client:
    client.wait_for_workers(1)
    select("/data/data.zarr", k=10, h=100, out="/data/chosen.zarr", resume=True)
