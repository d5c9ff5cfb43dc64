"""Stores of any kind are read as written, and damage never leads to a wrong answer."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import fuzzing
import numcodecs
import numpy as np
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
def stores(draw: Any) -> dict[str, Any]:
    """Draw how a table is stored and labelled."""
    n, p = draw(st.integers(8, 30)), draw(st.integers(fuzzing.H, 7))
    form = draw(st.sampled_from([2, 3]))
    chunks = (draw(st.integers(1, n + 3)), draw(st.integers(1, p + 2)))
    dtype = draw(st.sampled_from(DTYPES))
    if form == 3:
        dtype = dtype.lstrip(">")
    return {
        "shape": (n, p),
        "zarr_format": form,
        "chunks": chunks,
        "shards": draw(st.sampled_from([None, 1, 3])) if form == 3 else None,
        "order": draw(st.sampled_from("CF")) if form == 2 else None,
        "compressors": draw(st.sampled_from(CODECS[form])),
        "dtype": dtype,
        "fill_value": draw(st.sampled_from([0, 1])) if form == 3 else 0,
        "labels": draw(st.sampled_from(["none", "text", "numbers", "duplicates"])),
        "gaps": draw(st.booleans()) and dtype in ("f4", "f8", ">f8"),
        "seed": draw(st.integers(0, 99)),
    }


@settings(deadline=None, max_examples=30)
@given(store=stores())
def test_any_store_is_read_as_it_was_written(store: dict[str, Any]) -> None:
    (n, p), dtype = store["shape"], store["dtype"]
    values = np.clip(np.rint(planted(n, p, seed=store["seed"]) * 9 + 50), 0, 120)
    values = (values > 50) if dtype == "bool" else values.astype(dtype)
    if store["gaps"]:
        values[:, 0] = np.nan
    chunks = tuple(np.minimum(store["chunks"], (n, p)).tolist())
    layout: dict[str, Any] = {
        "zarr_format": store["zarr_format"],
        "chunks": chunks,
        "compressors": store["compressors"],
        "fill_value": np.asarray(store["fill_value"]).astype(dtype).item(),
    }
    if store["shards"]:
        layout["shards"] = tuple(c * store["shards"] for c in chunks)
    if store["order"]:
        layout["order"] = store["order"]
    labels = {
        "none": None,
        "text": [f"f{i} é" for i in range(p)],
        "numbers": [i * 2 for i in range(p)],
        "duplicates": ["a"] * p,
    }[store["labels"]]
    varying = ((values != values[0]) & (values == values)).any(axis=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.zarr")
        if labels is None:
            write_bare(path, values, **layout)
        else:
            coordinates = xr.Dataset(coords={"feature": labels})
            form: Any = {"zarr_format": store["zarr_format"], "consolidated": False}
            coordinates.to_zarr(path, **form)
            names = {"dimension_names": ("row", "feature")} if store["zarr_format"] == 3 else {}
            write_bare(path / "table", values, **layout, **names)
            if not names:
                array = zarr.open_array(path / "table", mode="r+")
                array.attrs["_ARRAY_DIMENSIONS"] = ["row", "feature"]
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
