"""Which wavelengths a cheap sensor needs, learnt from full spectra.

    python examples/spectra.py

A made-up survey: near-infrared spectra of grains of four minerals, at 400 wavelengths, each
mineral with absorption bands of its own; the base line has been corrected, a little of its drift
is left. (Do correct it: what moves all wavelengths together is the strongest component, and
clusters follow it.) A sorting machine has filters for 8 wavelengths. Which? Neighbouring
wavelengths say nearly the same, so this is where solvers differ most.
"""

import sys
from pathlib import Path

try:
    import numpy as np
    import xarray as xr
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score
    from sklearn.preprocessing import scale

    from kmufs_stream import decompose, select
except ModuleNotFoundError as missing:
    print(f"{missing}: pip install .", file=sys.stderr)
    sys.exit(2)

BANDS = {  # centre and width in nm, depth
    "kaolinite": [(1400, 15, 0.30), (2200, 25, 0.30)],
    "gypsum": [(1450, 20, 0.25), (1940, 30, 0.30), (2210, 20, 0.10)],
    "calcite": [(2340, 30, 0.35)],
    "goethite": [(1000, 90, 0.30)],
}


def survey(grains: int, seed: int = 0) -> xr.Dataset:
    """Reflectances of grain x wavelength, with the mineral of each grain."""
    rng = np.random.default_rng(seed)
    wavelength = np.linspace(900, 2500, 400)
    kind = rng.integers(len(BANDS), size=grains)
    pure = np.array(
        [
            sum(d * np.exp(-(((wavelength - c) / w) ** 2)) for c, w, d in bands)
            for bands in BANDS.values()
        ]
    )
    grain_size = rng.normal(1.0, 0.25, (grains, 1))  # scales the depth of all bands
    drift = rng.normal(0, 0.005, (grains, 2)) @ np.array([np.ones(400), np.linspace(-1, 1, 400)])
    noise = rng.normal(0, 0.02, (grains, 400))
    reflectance = (0.8 - grain_size * pure[kind] + drift + noise).astype(np.float32)
    return xr.Dataset(
        {"reflectance": (("grain", "wavelength"), reflectance)},
        coords={"wavelength": wavelength.round(), "mineral": ("grain", np.array([*BANDS])[kind])},
    )


def main(folder: Path, grains: int = 20_000) -> dict[str, float]:
    """Choose wavelengths by three solvers, from one read."""
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "spectra.zarr"
    survey(grains).chunk(grain=2000).to_zarr(store, mode="w", zarr_format=2)

    # The store is read here; every selection after that is made from what was learnt.
    factor = decompose(store, k=4)
    agreement = {}
    for solver in ("exact", "css", "consensus"):
        chosen = select(store, k=4, h=8, solver=solver, factor=factor).dataset
        values = scale(chosen.reflectance.values.astype(float))
        clusters = KMeans(4, n_init=5, random_state=0).fit_predict(values)
        agreement[solver] = float(adjusted_rand_score(chosen.mineral.values, clusters))
        wavelengths = ", ".join(f"{w:.0f}" for w in chosen.wavelength.values)
        print(f"{solver:10} {wavelengths} nm: adjusted Rand index {agreement[solver]:.2f}")

    print(
        "\nexact takes the wavelengths that the leading components explain best, eight times the\n"
        "same; css and consensus weigh copies and spread over the absorption bands."
    )
    return agreement


if __name__ == "__main__":
    main(Path("example-spectra"))
