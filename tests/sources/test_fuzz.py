"""Stores of any kind are read as written, and damage never leads to a wrong answer."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import fuzzing
import numcodecs
import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
import zarr
from helpers import planted, write_bare
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = ["bool", "i1", "u2", "i4", "u8", "f2", "f4", "f8", ">i2", ">f8"]
CODECS: dict[int, list[Any]] = {
    2: [None, numcodecs.Zlib(1), numcodecs.Blosc(), numcodecs.LZ4()],
    3: [None, zarr.codecs.GzipCodec(), zarr.codecs.ZstdCodec(), zarr.codecs.BloscCodec()],
}


@st.composite
def stores(draw: Any) -> tuple[npt.NDArray[Any], list[Any] | None, dict[str, Any]]:
    """Draw a table, the labels of its features, and how it is stored."""
    n, p = draw(st.integers(8, 30)), draw(st.integers(fuzzing.H, 7))
    form = draw(st.sampled_from([2, 3]))
    chunks = (draw(st.integers(1, n)), draw(st.integers(1, p)))
    dtype = draw(st.sampled_from(DTYPES if form == 2 else DTYPES[:-2]))
    codec = draw(st.sampled_from(CODECS[form]))
    layout = {"zarr_format": form, "chunks": chunks, "compressors": codec, "fill_value": 0}
    if form == 2:
        layout["order"] = draw(st.sampled_from("CF"))
    else:
        layout["fill_value"] = np.array(draw(st.integers(0, 1))).astype(dtype).item()
        shard = draw(st.sampled_from([None, 1, 3]))
        layout["shards"] = shard and (chunks[0] * shard, chunks[1] * shard)

    values = np.clip(np.rint(planted(n, p, seed=draw(st.integers(0, 99))) * 9 + 50), 0, 120)
    values = (values > 50) if dtype == "bool" else values.astype(dtype)
    if dtype in ("f4", "f8", ">f8") and draw(st.booleans()):
        values[:, 0] = np.nan
    labels = [[f"f{i} é" for i in range(p)], [i * 2 for i in range(p)], ["a"] * p]
    return values, draw(st.sampled_from([None, *labels])), layout


@settings(deadline=None, max_examples=30)
@given(store=stores())
def test_any_store_is_read_as_it_was_written(store: Any) -> None:
    values, labels, layout = store
    varying = ((values != values[0]) & (values == values)).any(axis=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.zarr")
        if labels is None:
            write_bare(path, values, **layout)
        else:
            form: Any = {"zarr_format": layout["zarr_format"], "consolidated": False}
            xr.Dataset(coords={"feature": labels}).to_zarr(path, **form)
            named = layout["zarr_format"] == 3
            write_bare(
                path / "table",
                values,
                **layout,
                dimension_names=("row", "feature") if named else None,
                attributes=None if named else {"_ARRAY_DIMENSIONS": ["row", "feature"]},
            )
        code, answer = fuzzing.select(path)
    if code != 0:
        assert code == 2
        assert answer["error"]["code"] in ("all_constant", "bad_h", "bad_k", "no_features")
        assert varying.sum() < fuzzing.H or answer["error"]["code"] == "bad_k"
        return
    fuzzing.assert_right(answer, values)
    assert answer["labels"] == (labels and [labels[i] for i in answer["selected"]])


@pytest.mark.filterwarnings("ignore")
def test_damage_is_answered_or_told(tmp_path: Path) -> None:
    for seed in range(50):
        fuzzing.survives(seed, tmp_path)
