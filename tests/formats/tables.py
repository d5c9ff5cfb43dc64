"""Tables to convert, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers import no_warnings, planted

from kmufs_stream import Conversion, RequestError, convert

N = 150
X = planted(N, 6)
LABELS = [f"g{i}" for i in range(6)]
NAMES = [f"é {i}" for i in range(6)]
KIND = np.array(["left", "right", "far off"])[np.arange(N) % 3]
DAYS = np.datetime64("2024-02-27") + np.arange(N)


def frame(**columns: Any) -> pd.DataFrame:
    """Six features, and a class between them that is not known of two samples."""
    kind = KIND.astype(object)
    kind[[7, 100]] = None
    table = pd.DataFrame(X.copy(), columns=LABELS)
    table.insert(2, "class", kind)
    return table.assign(**columns)


def named_frame() -> pd.DataFrame:
    """The features alone, under other names, of samples that have names."""
    return pd.DataFrame(X.copy(), columns=NAMES, index=[f"cell {i}" for i in range(N)])


def written(folder: Path, kind: str, table: pd.DataFrame) -> Path:
    """The table as a file, or a folder of two files."""
    path = folder / f"x.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
        return path
    if kind == "parquet":
        table.to_parquet(path, row_group_size=47)
        return path
    path.mkdir()
    table[:70].to_parquet(path / "part-0.parquet")
    table[70:].to_parquet(path / "part-1.parquet")
    return path


def text(folder: Path, content: str, name: str = "x.csv") -> Path:
    """The content as a file."""
    (folder / name).write_text(content)
    return folder / name


def beside(source: Path | str, name: str) -> Path:
    return Path(str(source).partition("::")[0]).with_name(name)


def convert_and_open(source: Path | str, **options: Any) -> tuple[Conversion, xr.Dataset]:
    """What a conversion says, and what it wrote beside its source."""
    with no_warnings():
        done = convert(source, beside(source, "out.zarr"), overwrite=True, **options)
        with xr.open_zarr(done.output) as found:
            return done, found.load()


def converted(source: Path | str, **options: Any) -> xr.Dataset:
    """What a conversion wrote, opened."""
    return convert_and_open(source, **options)[1]


def refused(source: Path | str, said: str = "", **options: Any) -> RequestError:
    """The error of a conversion whose message, or hint, has this; nothing is left of it."""
    out = beside(source, "refused.zarr")
    with pytest.raises(RequestError, match=f"(?s){said}") as caught:
        convert(source, out, **options)
    assert not out.exists()
    return caught.value
