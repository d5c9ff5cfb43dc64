"""Read rows of Zarr arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from kmufs_stream.errors import BrokenError
from kmufs_stream.sources.dimensions import Stacking
from kmufs_stream.storage.chunks import address, cells, corrupt_chunk, damaged_chunk

CF_PACKING = ("scale_factor", "add_offset", "missing_value", "_FillValue", "_Unsigned")


@dataclass(frozen=True)
class StoredRows:
    """Rows of a Zarr array, decoded by xarray if they are packed."""

    array: zarr.Array[Any]
    stacking: Stacking
    packing: dict[str, Any]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        values = self._stored(start, stop, None)
        if not self.packing:
            return values
        packed = xr.Dataset({"x": (("sample", "feature"), values, self.packing)})
        decoded = xr.decode_cf(packed, decode_times=False, decode_coords=False)
        values = decoded["x"].values
        return values

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        return self._stored(start, stop, columns)

    def _stored(self, start: int, stop: int, columns: NDArray[np.int64] | None) -> NDArray[Any]:
        try:
            return self.stacking.gather(self._fetch, start, stop, columns)
        except BrokenError:
            raise
        except Exception as error:
            raise self._broken(start, stop, error) from error

    def _fetch(self, index: tuple[Any, ...]) -> NDArray[Any]:
        if all(isinstance(part, slice) for part in index):
            return np.asarray(self.array[index])
        return np.asarray(self.array.oindex[index])

    def _broken(self, start: int, stop: int, error: Exception) -> BrokenError:
        """Find the damaged chunk, by reading those of the region one by one."""
        axis, span = self.stacking.span(start, stop)
        found = damaged_chunk(
            self.array,
            (
                (cell, key)
                for cell, key in cells(self.array)
                if cell[axis].stop > span.start and cell[axis].start < span.stop
            ),
        )
        if found is not None:
            return found
        said = f"cannot be read: {type(error).__name__}: {error}"
        return corrupt_chunk(f"rows {start}..{stop - 1} of {address(self.array)} {said}", None)


def packing(array: zarr.Array[Any], attrs: dict[str, Any]) -> dict[str, Any]:
    """Return the CF attributes by which stored numbers differ from their values.

    In format 2 xarray stores ``_FillValue`` as the array's fill value, where 0 may just be Zarr's
    default: it then marks missing values in packed data only, and never in booleans.
    """
    found = {key: attrs[key] for key in CF_PACKING if key in attrs}
    packed = "scale_factor" in found or "add_offset" in found
    only_fill = array.metadata.zarr_format == 2 and "_FillValue" not in array.attrs
    if only_fill and not packed and (not array.fill_value or array.dtype.kind == "b"):
        found.pop("_FillValue", None)
    return {k: v for k, v in found.items() if not (isinstance(v, float | np.floating) and v != v)}
