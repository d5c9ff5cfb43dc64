"""Features that look as if they described the samples are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from formats.tables import N, X, convert_and_open, frame, written

from kmufs_stream import RequestError, evaluate, open_matrix, select


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_features_that_look_as_if_they_described_samples_are_told(
    tmp_path: Path, kind: str
) -> None:
    columns = {
        "n": np.arange(N) + 1,
        "Index": np.arange(N) % 7 * 3,
        "label": np.arange(N) % 4,
        "Y": [*np.arange(N - 1) % 2, None],
        "cluster": X[:, 0],  # no whole numbers
        "id": np.arange(N) + 0.5,
        "jumps": [0, 0, *range(2, N)],
    }
    done, found = convert_and_open(written(tmp_path, kind, frame(**columns)))
    assert found.sizes == {"sample": N, "feature": 6 + len(columns)}
    (note,) = done.notes
    told = ["n", "Index", "label", "Y"]
    assert f"`coordinates={told}, overwrite=True`" in note
    assert done.summary()["notes"] == [note]
    assert convert_and_open(tmp_path / f"x.{kind}", coordinates=told)[0].notes == ()


def test_whole_numbers_among_real_ones_are_told(tmp_path: Path) -> None:
    told = {
        "number": np.arange(N)[::-1] * 3 + 1000,
        "plate": np.arange(N) % 8 + 1,
        "dayOf": [None, *np.arange(N - 1) % 8],
        "species_code": np.arange(N) % 30 * 2,
        "batchId": np.arange(N) % 30 * 2,
    }
    others = {"height": np.arange(N) % 30 * 2, "valid": X[:, 0], "flat": np.ones(N)}
    path = written(tmp_path, "csv", frame(**told, **others))
    (note,) = convert_and_open(path)[0].notes
    assert f"`coordinates={[*told]}, overwrite=True`" in note
    assert convert_and_open(path, coordinates=[*told])[0].notes == ()


def test_a_table_of_counts_is_told_of_by_name_alone(tmp_path: Path) -> None:
    counts = {f"g{i}": np.arange(N) % (i + 2) * 2 for i in range(6)}
    path = tmp_path / "x.csv"
    pd.DataFrame({**counts, "mass": X[:, 0], "serial": np.arange(N)[::-1]}).to_csv(
        path, index=False
    )
    assert convert_and_open(path)[0].notes == ()
    pd.DataFrame({**counts, "well_id": np.arange(N) % 96}).to_csv(path, index=False)
    assert "'well_id' may number" in convert_and_open(path)[0].notes[0]


def test_a_class_among_variables_is_told(tmp_path: Path) -> None:
    variables = {f"v{i}": ("time", X[:, i].astype(np.float32)) for i in range(4)}
    sensors = xr.Dataset({**variables, "mode": ("time", np.arange(N) % 3)})
    store = tmp_path / "sensors.zarr"
    sensors.to_zarr(store, consolidated=False)
    for data in (sensors, store):
        matrix = open_matrix(data, features_from_variables=True)
        assert matrix.doubt is not None
        assert "exclude_features=['mode']" in matrix.doubt
        assert matrix.doubt.endswith("float64, not float32")
        without = open_matrix(data, features_from_variables=True, exclude_features="mode")
        assert without.doubt is None
    with_class, chosen = tmp_path / "with.zarr", tmp_path / "chosen.zarr"
    select(matrix, 3, 2, keep="mode", out=with_class)
    with pytest.raises(RequestError, match="'mode' is one of the features") as caught:
        evaluate(with_class, labels="mode")
    assert "exclude_features='mode'" in caught.value.remedy
    select(without, 3, 2, out=chosen)
    with pytest.raises(RequestError) as caught:
        evaluate(chosen, labels="mode")
    assert "`data`" in caught.value.remedy
    assert evaluate(chosen, labels="mode", data=store).agreement is not None
