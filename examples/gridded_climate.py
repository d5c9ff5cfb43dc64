"""Where to keep weather stations: the grid points that tell weather regimes apart.

    python examples/gridded_climate.py

A made-up reanalysis: daily temperature anomalies on a grid of time x lat x lon, with sea masked.
The weather moves between four regimes, each a large pattern over the map. Samples are days,
features are grid points: which ten would tell the regimes apart?
"""

import sys
from pathlib import Path

try:
    import numpy as np
    import pandas as pd
    import xarray as xr
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    from kmufs_stream import open_matrix, select
except ModuleNotFoundError as missing:
    print(f"{missing}: pip install .", file=sys.stderr)
    sys.exit(2)

CENTRES = {"blocking": (65, 10), "ridge": (45, -5), "trough": (50, 30), "zonal": (40, 20)}


def reanalysis(days: int, seed: int = 0) -> xr.Dataset:
    """Temperature of time x lat x lon, NaN over sea, and the regime of each day."""
    rng = np.random.default_rng(seed)
    lat, lon = np.arange(70.0, 30, -2), np.arange(-15.0, 40, 2.5)
    change = rng.random(days) < 0.2  # a regime lasts five days or so
    drawn = rng.integers(len(CENTRES), size=days)
    regime = drawn[np.maximum.accumulate(np.where(change, np.arange(days), 0))]
    patterns = np.array(
        [
            np.exp(-(((lat[:, None] - a) / 9) ** 2) - ((lon[None, :] - o) / 13) ** 2)
            for a, o in CENTRES.values()
        ]
    )
    strength = rng.gamma(9.0, 0.6, days)[:, None, None]  # 5 K or so
    weather = rng.normal(0, 1.5, (days, len(lat) // 4, len(lon) // 2))  # smaller, without a memory
    weather = np.kron(weather, np.ones((1, 4, 2)))
    field = strength * patterns[regime] + weather + rng.normal(0, 0.5, weather.shape)
    sea = (lat[:, None] < 36) | ((lon[None, :] < -8) & (lat[:, None] > 44))
    return xr.Dataset(
        {"t2m": (("time", "lat", "lon"), np.where(sea, np.nan, field).astype(np.float32))},
        coords={
            "time": pd.date_range("1990-01-01", periods=days),
            "lat": lat,
            "lon": lon,
            "regime": ("time", np.array([*CENTRES])[regime]),
        },
    )


def main(folder: Path, days: int = 4000) -> dict[str, float]:
    """Choose grid points and see whether they know the regime."""
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "reanalysis.zarr"
    data = reanalysis(days)
    data.chunk(time=365).to_zarr(store, mode="w", zarr_format=2)

    # lat and lon are stacked as blocks are read; grid points without any value, the sea, are left
    # out and counted.
    matrix = open_matrix(store, variable="t2m", sample_dims="time")
    result = select(matrix, k=4, h=10, solver="consensus")
    chosen = result.dataset
    print(f"sea: {len(result.factor.features.excluded['all_missing'])} of {matrix.shape[1]} points")

    # A map: what each chosen point is, by rank.
    picture = np.where(np.isnan(data.t2m[0]), " ~", " .").astype(object)
    rows, columns = data.indexes["lat"], data.indexes["lon"]
    for place in chosen[["lat", "lon", "rank"]].to_dataframe().itertuples():
        picture[rows.get_loc(place.lat), columns.get_loc(place.lon)] = f"{place.rank:2}"
    print("\n".join("".join(row) for row in picture))

    scores = {}
    everywhere = data.t2m.stack(point=("lat", "lon")).dropna("point")
    for name, values in (("the chosen points", chosen.t2m), ("all land", everywhere)):
        clusters = KMeans(4, n_init=5, random_state=0).fit_predict(values.values)
        scores[name] = float(adjusted_rand_score(data.regime, clusters))
        print(f"K-means on {name}: adjusted Rand index {scores[name]:.2f} with the regimes.")
    return scores


if __name__ == "__main__":
    main(Path("example-climate"))
