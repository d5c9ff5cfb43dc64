"""Whatever happens between us and an object store, a result is right or the run is refused.

After a refusal the same run, undisturbed, is right, and nothing else is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Bucket, planted, same_result, write_bare
from nightly.tally import Tally, trials
from nightly.unreliable import Unreliable, unreliable

from kmufs_stream import KmufsError, select

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def network(
    s3_server: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Unreliable]:
    """In front of the bucket's server; whoever waits to ask again waits for a moment only."""
    sleep = asyncio.sleep

    async def briefly(seconds: float, *result: Any) -> Any:
        return await sleep(min(seconds, 0.01), *result)

    monkeypatch.setattr(asyncio, "sleep", briefly)
    with unreliable(s3_server) as server:
        yield server
    Bucket.forget()


@trials(200, batch=10)
def test_faults_of_the_network(
    tmp_path: Path, bucket: Bucket, network: Unreliable, tally: Tally, seeds: range
) -> None:
    data = write_bare(tmp_path / "data.zarr", planted(120, 12), chunks=(10, 12))
    there, options = bucket.put(data), {"endpoint_url": network.address}
    alone = tmp_path / "alone.zarr"
    select(data, 3, 4, out=alone)
    names = {"data.zarr", "out.zarr"}

    def trial(seed: int) -> str | None:
        rng = np.random.default_rng(seed)
        out, kept = bucket.at("out.zarr"), bucket.at("kept")
        for key in bucket.objects():
            if not key.startswith("data.zarr"):
                bucket.fs.rm_file(f"{bucket.name}/{key}")
        older = rng.random() < 0.3
        if older:
            select(data, 3, 5, out=out)
        asked: dict[str, Any] = {"out": out, "checkpoint": kept if rng.random() < 0.3 else None}
        network.harm(seed, float(rng.choice([0.01, 0.03, 0.1, 0.3, 0.6])))
        refused: KmufsError | None = None
        try:
            select(there, 3, 4, overwrite=older, storage_options=options, **asked)
        except KmufsError as error:
            refused = error
        network.harm(seed, 0)
        if refused is not None:
            assert f"s3://{bucket.name}/" in refused.message, refused
            resume = asked["checkpoint"] is not None
            select(there, 3, 4, overwrite=True, resume=resume, storage_options=options, **asked)
        same_result(out, alone)
        assert {key.partition("/")[0] for key in bucket.objects()} == names
        return None if refused is None else refused.code

    tally("faults of the network", seeds, trial)
