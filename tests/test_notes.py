"""What is told beside a result: what may not be meant, what takes long, where options go."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers import planted

from kmufs_stream import (
    AdmmOptions,
    Noticed,
    RequestError,
    Screening,
    decompose,
    open_matrix,
    plan_selection,
    select,
    sweep,
)
from kmufs_stream.factors.solving import long_run_note

N = 300
X = planted(N, 6)
NAMES = [f"v{i}" for i in range(6)]


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("class", np.arange(N) % 3, True),
        ("class", X[:, 0] / 3, False),  # real numbers
        ("class", np.arange(N)[::-1] * 2, False),  # more values than classes
        ("customer_id", np.random.default_rng(0).permutation(N) + 100_000, True),
        ("label", np.where(np.arange(N) % 7, np.arange(N) % 3, np.nan), True),
        ("anything", np.arange(N) + 1, True),
        ("anything", np.arange(N) + 2, False),
        ("anything", np.arange(N) % 3, False),
    ],
)
def test_a_table_of_one_dtype_tells_what_may_describe_its_samples(
    name: str, values: np.ndarray, told: bool
) -> None:
    frame = pd.DataFrame(X, columns=NAMES).assign(**{name: values})
    table = xr.DataArray(frame, dims=("sample", "feature"), name="data")
    filled = Screening("mean")
    chosen = select(table, 3, 3, solver="exact", screening=filled)
    note = (
        f"{name!r} may number the samples or tell what they are: if so, give "
        f"`open_matrix(data, exclude_features=[{name!r}])`"
    )
    assert chosen.notes == ((note,) if told else ())
    assert chosen.summary()["notes"] == [*chosen.notes]
    assert (note in repr(chosen)) is told
    without = open_matrix(table, exclude_features=name)
    assert select(without, 3, 3, solver="exact").notes == ()
    factor = decompose(table, 3, screening=filled)
    assert select(table, 3, 3, solver="exact", factor=factor).notes == chosen.notes


def test_sizes_that_do_not_fit_are_noted() -> None:
    (note,) = select(X, 5, 2, solver="exact").notes
    assert "`h=4` or more" in note
    assert select(X, 3, 2, solver="exact").notes == ()


def test_a_long_solve_is_foretold() -> None:
    said = long_run_note(["admm"], 800, [600], 3000) or ""
    assert all(word in said for word in ("800 features", "exact", "consensus"))
    assert long_run_note(["admm"], 800, [100], 3000) is None
    assert long_run_note(["admm"], 800, [600], 10) is None  # few steps are asked for
    assert long_run_note(["consensus", "exact"], 800, [600], 3000) is None
    assert long_run_note(["admm"], 800, [800], 3000) is None  # nothing is left to choose
    assert long_run_note(["exact", "admm"], 800, [100, 200] * 20, 3000) is not None


def test_it_is_foretold_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kmufs_stream.factors.solving.LONG", 1.0)
    options = AdmmOptions(max_iter=5)
    for run in (partial(select, X, 3, 2), partial(sweep, X, [2, 3], [2, 3])):
        events: list[Any] = []
        run(options=options, progress=events.append)
        (note,) = (event.text for event in events if isinstance(event, Noticed))
        assert "admm" in note


def test_remedies_say_where_options_go(tmp_path: Path) -> None:
    store = tmp_path / "weather.zarr"
    cube = X.reshape(N, 2, 3)
    xr.Dataset(
        {"t2m": (("time", "lat", "lon"), cube), "mask": (("lat", "lon"), np.ones((2, 3)))}
    ).to_zarr(store, consolidated=False)
    for run in (select, plan_selection, sweep):
        with pytest.raises(RequestError) as caught:
            run(store, 3, 2)
        assert "`open_matrix(data, variable='t2m', sample_dims='time')`" in caught.value.remedy
    gaps = X.copy()
    gaps[3, 2] = np.nan
    with pytest.raises(RequestError) as caught:
        select(gaps, 3, 2)
    assert "`screening=Screening(missing='mean')`" in caught.value.remedy
