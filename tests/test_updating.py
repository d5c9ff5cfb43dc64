"""Rows added to a factor: what comes out is the factor of all rows together."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.sparse
import xarray as xr
from anndata import AnnData
from helpers import counted, every_score, labelled, planted, write_bare, write_xarray
from hypothesis import given, settings
from hypothesis import strategies as st
from sources.anndata_stores import write_zarr3

from kmufs_stream import (
    BrokenError,
    Factor,
    KMeansUFS,
    RequestError,
    Screening,
    decompose,
    load_factor,
    open_matrix,
    save_factor,
    select,
    update,
    updating,
)
from kmufs_stream.streaming.kernels import sample

K = 3


def assert_same(found: Factor, whole: Factor, rtol: float = 1e-9) -> None:
    """Equal to rounding; what counts rows and features, exactly."""
    ours, theirs = found.features, whole.features
    assert ours.samples == theirs.samples
    for name in ("usable", "missing", "dropped"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
    np.testing.assert_equal(ours.excluded, theirs.excluded)
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=rtol, atol=1e-9)
    np.testing.assert_allclose(ours.std, theirs.std, rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(found.singular_values, whole.singular_values, rtol=rtol)
    np.testing.assert_allclose(found.correlation, whole.correlation, atol=10 * rtol)
    np.testing.assert_allclose(every_score(found, K), every_score(whole, K), atol=10 * rtol)
    np.testing.assert_array_equal(found.sample.index, whole.sample.index)
    assert found.sample.values.dtype == whole.sample.values.dtype
    np.testing.assert_array_equal(found.sample.values, whole.sample.values)
    assert found.precision == whole.precision
    if whole.gaps is not None:
        np.testing.assert_array_equal(found.gaps.counts, whole.gaps.counts)
        np.testing.assert_allclose(found.gaps.values, whole.gaps.values, atol=1e5 * rtol)


@pytest.mark.parametrize(("dtype", "seen"), [("f8", 3), ("f4", 60), ("i2", 3)])
def test_rows_of_which_some_are_in_the_factor_are_told(dtype: str, seen: int) -> None:
    table = (planted(300, 8) * 1000).astype(dtype)
    if dtype != "i2":
        table[:, 2][::9] = np.nan
    means = Screening(missing="mean")
    factor = decompose(table[:200], K, screening=means)
    order = np.random.default_rng(0).permutation(100 + seen)
    again = table[200 - seen :][order]
    with pytest.raises(RequestError, match=rf"of {100 + seen} that .* sample, {seen}\.") as caught:
        update(factor, again)
    assert caught.value.code == "already_added"
    more = update(factor, table[200:])
    with pytest.raises(RequestError, match="Some rows"):
        update(more, again[: 50 + seen])
    assert_same(more, decompose(table, K, screening=means), rtol=1e-9 if dtype == "f8" else 1e-4)


def test_rows_that_are_alike_by_nature_are_added() -> None:
    rng = np.random.default_rng(0)
    few = rng.integers(0, 2, (400, 6)).astype(float)  # of 64 rows that there may be
    assert_same(in_steps(few, [200, 300]), decompose(few, K))
    some = planted(400, 6)
    some[rng.random(400) < 0.05] = 0  # when the sensors were off
    assert_same(in_steps(some, [150, 390]), decompose(some, K))
    ones = update(decompose(some, K), np.ones((50, 6)))
    assert update(ones, np.ones((50, 6), "f4")).features.rows == 500


def in_steps(table: Any, cuts: list[int], **options: Any) -> Factor:
    """The factor of the first rows, to which the others are added run by run."""
    factor = decompose(table[: cuts[0]], K, **options)
    for a, b in zip(cuts, [*cuts[1:], len(table)], strict=True):
        factor = update(factor, table[a:b])
    return factor


@mock.patch.object(sample, "SAMPLE_ROWS", 40)
@settings(deadline=None, max_examples=30)
@given(
    n=st.integers(50, 300),
    p=st.integers(7, 12),
    cuts=st.lists(st.floats(0.3, 0.9), min_size=1, max_size=3),
    dtype=st.sampled_from(["f8", "f4", "i2", "u1"]),
    far=st.sampled_from([0.0, 1.0, 100.0]),
    seed=st.integers(0, 1000),
)
def test_equal_to_a_factor_of_everything(
    n: int, p: int, cuts: list[float], dtype: str, far: float, seed: int
) -> None:
    table = planted(n, p, seed=seed) * 10 + 60
    table[n // 2 :] += far  # the new rows lie elsewhere
    table[:, 1] = 7  # constant throughout
    table[: n // 2, 2] = 7  # at first
    table = table.clip(0, 250).astype(dtype)
    places = sorted({int(c * n) for c in cuts})
    single = dtype != "f8"
    whole = decompose(table, K)
    assert len(whole.sample.index) == 40
    assert_same(in_steps(table, places), whole, 1e-4 if single else 1e-9)


def with_gaps(n: int = 400, p: int = 10) -> Any:
    """Gaps in some features, one without values at all, one constant at first."""
    rng = np.random.default_rng(1)
    table = planted(n, p) * 3 + 20
    table[:, :4][rng.random((n, 4)) < 0.05] = np.nan
    table[:, 7] = np.nan
    table[:250, 8] = 5
    return table


def partly(complete: slice) -> Any:
    """Gaps in the other rows only."""
    table = with_gaps()
    table[complete, :4] = np.nan_to_num(table[complete, :4], nan=17)
    return table


@pytest.mark.parametrize(
    ("table", "cuts", "missing"),
    [
        *((with_gaps(), [200], missing) for missing in ("mean", "drop-features", "drop-samples")),
        (with_gaps(), [60, 250, 251], "mean"),
        (partly(slice(200)), [200], "mean"),
        (partly(slice(200, None)), [200], "mean"),
    ],
    ids=["mean", "features", "samples", "often", "new", "old"],
)
def test_missing_values(table: Any, cuts: list[int], missing: str) -> None:
    screening = Screening(missing)
    whole = decompose(table, K, screening=screening)
    assert_same(in_steps(table, cuts, screening=screening), whole)


def test_feature_without_values_that_gets_some() -> None:
    table = with_gaps()
    table[200:300, 7] = np.arange(100)
    whole = decompose(table, K, screening=Screening("mean"))
    assert_same(in_steps(table, [200], screening=Screening("mean")), whole)
    assert 7 in whole.features.usable
    with pytest.raises(RequestError, match="feature 7 was left out of the factor as all missing"):
        in_steps(table, [200], screening=Screening("drop-samples"))
    table[:, :4] = 1 + np.nan_to_num(table[:, :4])
    with pytest.raises(RequestError, match=r"missing \(NaN\)"):
        in_steps(table, [200])


def test_float32_gaps_and_features_asked_for() -> None:
    table = xr.DataArray(
        with_gaps().astype(np.float32), dims=("t", "f"), coords={"f": [f"f{i}" for i in range(10)]}
    )
    asked = {"exclude_features": ["f5", "f0"]}
    screening = Screening("mean", min_nonzero=0.01)
    whole = decompose(open_matrix(table, **asked), K, screening=screening)
    first = decompose(open_matrix(table[:150], **asked), K, screening=screening)
    found = update(first, table[150:])
    assert_same(found, whole, 1e-4)
    assert found.features.nonzero is not None
    np.testing.assert_array_equal(found.features.nonzero, whole.features.nonzero)


@pytest.mark.parametrize("screening", [Screening(min_std=1), Screening(min_nonzero=0.3)], ids=str)
def test_features_that_varied_too_little_and_now_do_not(screening: Screening) -> None:
    table = planted(300, 8) * 4 + 20
    table[:150, 3] = 0
    table[5:8, 3] = 0.5
    whole = decompose(table, K, screening=screening)
    assert_same(in_steps(table, [280], screening=screening), whole)
    table[150:, 3] *= 3
    with pytest.raises(RequestError, match="feature 3") as caught:
        in_steps(table, [150], screening=screening)
    assert caught.value.code == "feature_returned"


def test_sparse_rows(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).poisson(np.exp(planted(300, 12) / 2)).astype(np.float32)
    counts[:200, 4] = 0
    paths = [tmp_path / f"{name}.zarr" for name in ("all", "old", "new")]
    for path, rows in zip(paths, (counts, counts[:200], counts[200:]), strict=True):
        write_zarr3(AnnData(scipy.sparse.csr_matrix(rows)), path)
    transform = ("normalise-rows", "log1p")
    whole, first = (decompose(open_matrix(path, transform=transform), K) for path in paths[:2])
    assert_same(update(first, paths[2]), whole)


def test_selections_of_all_data_take_it_and_others_do_not(tmp_path: Path) -> None:
    array = labelled(planted(400, 9))
    old = write_xarray(tmp_path / "old.zarr", array[:300], chunks=(50, 9))
    new = write_xarray(tmp_path / "new.zarr", array[300:], chunks=(50, 9))
    factor = update(decompose(old, K), new)
    for solver in ("exact", "consensus"):
        found = select(array, K, 4, solver=solver, factor=factor)
        assert found.selected.tolist() == select(array, K, 4, solver=solver).selected.tolist()
    whole = write_xarray(tmp_path / "all.zarr", array, chunks=(80, 9))
    select(whole, K, 4, solver="exact", factor=factor)
    renamed = array.assign_coords(gene=[f"x{i}" for i in range(9)])
    for other, why in (
        (old, "is 400 x 9, that of the data 300 x 9"),
        (array[::-1], "rows of its sample differ"),
        (renamed, "other labels"),
    ):
        with pytest.raises(RequestError, match=why):
            select(other, K, 4, factor=factor)
    for added in (new, old):
        with pytest.raises(RequestError, match="are in the factor already"):
            update(factor, added)


def test_features_are_found_by_label() -> None:
    array = labelled(planted(400, 9))
    old, new = array[:300], array[300:, ::-1]
    assert_same(update(decompose(old, K), new), decompose(array, K))
    assert_same(update(decompose(old, K), new.values[:, ::-1]), decompose(array, K))
    factor = decompose(old, K)
    twice = new.isel(gene=[0, 0, *range(9)])
    wider = xr.concat([new, new[:, :1].assign_coords(gene=["more"])], "gene")
    for other, code, named in [
        (new[:, 1:], "missing_features", "lacks 1 of the features: 'gene 8 é'"),
        (twice, "ambiguous_features", "repeats 1 of the features: 'gene 8 é'"),
        (wider, "other_features", "has more features than the factor, 1 of .*: 'more'"),
        (new.values[:, 1:], "wrong_features", "9 features"),
    ]:
        with pytest.raises(RequestError, match=named) as caught:
            update(factor, other)
        assert caught.value.code == code


def test_factors_that_cannot_grow_are_refused() -> None:
    table = planted(300, 9)
    whole = [decompose(table[:200], K, method=method) for method in ("tsqr", "lanczos")]
    batches = KMeansUFS(k=K, h=3, solver="exact").partial_fit(table[:200]).factor_
    for factor, why in zip([*whole, batches], ("by tsqr", "by lanczos", "of batches"), strict=True):
        with pytest.raises(RequestError, match=why) as caught:
            update(factor, table[200:])
        assert caught.value.code == "not_incremental"


@pytest.mark.parametrize(
    ("dtype", "value", "said"),
    [
        *(("i2", value, "cannot") for value in (0.5, 4e4, np.nan)),
        ("u1", -1.0, "cannot"),
        ("f4", 1e39, "which float32 cannot"),
        ("f4", np.inf, "infinite"),
    ],
)
def test_rows_that_the_factor_s_dtype_does_not_hold(dtype: str, value: float, said: str) -> None:
    table = np.rint(planted(300, 9) * 5 + 60)
    factor, new = decompose(table[:200].astype(dtype), K), table[200:]
    new[70, 4] = value
    with pytest.raises(RequestError, match=said):
        update(factor, new)


def test_what_cannot_be_added_is_refused(tmp_path: Path) -> None:
    table, place = planted(300, 9), tmp_path / "f.zarr"
    factor = decompose(table[:200], K, out=place)
    transformed = open_matrix(np.abs(table[200:]), transform="log1p")
    for new, options, message in [
        (table[:0], {}, "no samples to add"),
        (transformed, {}, "made with the transforms: none"),
        (table[200:], {"memory": "10MB"}, "Give `memory="),
        (table[200:], {"out": place}, "exists"),
    ]:
        with pytest.raises(RequestError, match=message):
            update(factor, new, **options)
    damaged = write_bare(tmp_path / "x.zarr", table[200:], chunks=(50, 9))
    (damaged / "c" / "1" / "0").write_bytes(b"no chunk")
    with pytest.raises(BrokenError):
        update(place, damaged, out=place, overwrite=True)
    np.testing.assert_array_equal(load_factor(place).components, factor.components)


@pytest.mark.parametrize(
    ("before", "after"), [("f4", "f8"), ("f4", "i8"), ("f8", "f4"), ("i2", "f8"), ("u1", "i8")]
)
def test_rows_of_another_dtype(before: str, after: str) -> None:
    table = planted(400, 9) * 5 + 60
    if (before, after) != ("f4", "f8"):  # which rounds as the older rows were
        table = np.rint(table).clip(0, 250)
    factor = update(decompose(table[:250].astype(before), K), table[250:].astype(after))
    assert_same(factor, decompose(table.astype(before), K), 1e-4 if before != "f8" else 1e-9)


def test_rows_are_known_whatever_their_dtype_order_chunks_and_times(tmp_path: Path) -> None:
    array = labelled(np.rint(planted(400, 9) * 5 + 60).astype("f4"))
    first, second = array[:250], array[250:]
    old = write_xarray(tmp_path / "old.zarr", first, chunks=(50, 9))
    new = write_xarray(tmp_path / "new.zarr", second, chunks=(50, 9))
    before = decompose(old, K)
    grown = update(before, new)
    save_factor(grown, tmp_path / "f.zarr")
    copy = write_xarray(tmp_path / "copy.zarr", first.astype("i2"), chunks=(30, 9))
    for factor, rows in [
        *((before, same) for same in (first, first.astype("f8"), first[:, ::-1], copy)),
        *((tmp_path / "f.zarr", same) for same in (copy, second.astype("f8"), second[:, ::-1])),
    ]:
        with pytest.raises(RequestError, match="in the factor already"):
            update(factor, rows)
    turned = second.copy(data=second.values[::-1])
    with pytest.raises(RequestError, match=r"of 150 that .* sample, 150"):
        update(tmp_path / "f.zarr", turned)
    assert update(tmp_path / "f.zarr", turned + 1).features.rows == 550


def test_a_store_that_has_grown_is_told_from_the_rows_it_grew_by() -> None:
    table = planted(400, 9)
    before = decompose(table[:200], K)
    with pytest.raises(RequestError, match="begins with the 200 rows") as caught:
        update(before, table[:260])
    assert caught.value.code == "already_added"
    grown = update(before, table[200:260])
    with pytest.raises(RequestError, match="begins with the 260 rows"):
        update(grown, table)
    del grown.fingerprint["rows"]  # as before rows were known
    for added in (table[200:260], table[200:260].astype(">f8")):
        with pytest.raises(RequestError, match="in the factor already"):
            update(grown, added)
    later = update(grown, table[260:])
    with pytest.raises(RequestError, match="in the factor already"):
        update(later, table[260:])


@pytest.mark.usefixtures("small_blocks")
def test_new_rows_alone_are_read_whatever_the_threads_and_the_factor_is_replaced(
    tmp_path: Path,
) -> None:
    table, place = planted(400, 9), tmp_path / "f.zarr"
    old = write_bare(tmp_path / "old.zarr", table[:300], chunks=(50, 9))
    new = write_bare(tmp_path / "new.zarr", table[300:], chunks=(20, 9))
    decompose(old, K, out=place)
    one = update(place, new, threads=1)
    matrix, rows = counted(open_matrix(new))
    update(place, matrix, out=place, overwrite=True, threads=4)
    assert max(b for _, b in rows.reads) <= 100
    loaded = load_factor(place)
    assert one.components.tobytes() == loaded.components.tobytes()
    assert one.fingerprint == loaded.fingerprint
    assert_same(loaded, decompose(table, K))
    assert loaded.passes == 1


def test_of_two_updates_at_once_none_is_lost_unsaid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, factor = planted(600, 9), tmp_path / "f.zarr"
    decompose(X[:300], K, method="gram", out=factor)
    add = updating._added

    def meanwhile(*arguments: Any) -> Factor:
        monkeypatch.setattr(updating, "_added", add)
        update(factor, X[300:400], out=factor, overwrite=True)
        return add(*arguments)

    monkeypatch.setattr(updating, "_added", meanwhile)
    with pytest.raises(BrokenError, match="another factor than when this update began"):
        update(factor, X[400:], out=factor, overwrite=True)
    assert load_factor(factor).features.rows == 400
    update(factor, X[400:], out=factor, overwrite=True)
    assert load_factor(factor).features.rows == 600


def test_places_in_another_order_of_dimensions_are_the_same_features() -> None:
    places = {"lat": [75.0, 70, 65, 60], "lon": [0.0, 2.5, 5, 7.5, 10]}
    cube = xr.DataArray(planted(120, 20).reshape(120, 4, 5), places, ("time", "lat", "lon"))
    factor = decompose(open_matrix(cube[:80], sample_dims="time"), K)
    turned = update(factor, cube[80:].transpose("lon", "time", "lat"))
    assert_same(turned, update(factor, cube[80:]))
    with pytest.raises(RequestError, match="lacks 4 of the features: 'lat=75 lon=10'"):
        update(factor, cube[80:].assign_coords(lon=[0.0, 2.5, 5, 7.5, 11]))
