"""Copy an AnnData store with three columns added to its table of features.

Everything else stays as it is stored. Analysis goes on as after scanpy's ``highly_variable_genes``.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.lib.recfunctions import append_fields, drop_fields
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text
from kmufs_stream.sources import Matrix
from kmufs_stream.sources.nodes import bad_metadata
from kmufs_stream.storage.output import check_output, new_output
from kmufs_stream.storage.places import Place, is_hdf5, name_of, zarr_root
from kmufs_stream.storage.zarr_io import quietly


def check_anndata_output(
    out: Place, matrix: Matrix, inputs: list[Place], *, overwrite: bool
) -> Path:
    """Return the path to copy to, before anything is computed.

    Raises RequestError as ``check_output()`` does, and if the source is no AnnData store or has
    metadata that zarr cannot read, either is not on this machine, or the name has the suffix of the
    other format.
    """
    source = matrix.provenance.place
    if matrix.provenance.feature_table is None:
        raise RequestError(
            "not_anndata",
            f"{matrix.source} is not an AnnData store, so there is none to copy.",
            Text("Leave out {anndata_out}; {out} writes the result for any source."),
        )
    for place in (source, out):
        if place is not None and not isinstance(place, Path):
            raise RequestError(
                "not_local",
                Text("{anndata_out} copies files, and {} is not on this machine.", name_of(place)),
                Text("Copy it here first, or leave out {anndata_out}."),
            )
    assert isinstance(source, Path)
    assert isinstance(out, Path)
    if source.is_file() and not is_hdf5(source):
        raise RequestError(
            "bad_output",
            f"{matrix.source} is zipped: columns cannot be added to a copy of it.",
            Text("Unzip it into a folder and give that, or leave out {anndata_out}."),
        )
    suffix = ".h5ad" if is_hdf5(source) else ".zarr"
    if out.suffix != suffix:
        raise RequestError(
            "bad_output",
            f"The copy of {matrix.source} has its format; {out} does not end in {suffix}.",
            Text("Give {anndata_out} a name that ends in {}.", suffix),
        )
    if suffix == ".zarr":
        _is_consolidated(source)
    check_output(out, inputs, overwrite=overwrite, parameter="anndata_out")
    return out


def _is_consolidated(source: Path) -> bool:
    """Raises RequestError for metadata that zarr cannot read: it could not consolidate a copy."""
    try:
        root = zarr.open_group(zarr_root(source), mode="r")
    except ValueError as error:
        raise bad_metadata(str(source), error) from error
    return root.metadata.consolidated_metadata is not None


def write_anndata(
    out: Path, matrix: Matrix, columns: Mapping[str, NDArray[Any]], *, overwrite: bool
) -> None:
    """Copy the AnnData store of a matrix to ``out`` with columns added to its table of features.

    Existing columns of these names are replaced. The output appears whole or not at all. Raises
    BrokenError if writing fails.
    """
    source, table = matrix.provenance.place, matrix.provenance.feature_table
    assert isinstance(source, Path)
    assert table is not None
    with new_output(out, overwrite=overwrite) as partial:
        if is_hdf5(source):
            import h5py

            shutil.copyfile(source, partial)
            with h5py.File(partial, "r+") as file:
                _extend(file, table, columns)
            return
        shutil.copytree(source, partial, copy_function=shutil.copyfile)
        for folder in [partial, *(Path(at, d) for at, below, _ in os.walk(partial) for d in below)]:
            folder.chmod(folder.stat().st_mode | 0o700)  # copies of read-only folders
        with quietly():
            copy = zarr_root(partial)
            _extend(zarr.open_group(copy, mode="r+", use_consolidated=False), table, columns)
            if _is_consolidated(source):
                zarr.consolidate_metadata(copy)


def _extend(root: Any, table: str, columns: Mapping[str, NDArray[Any]]) -> None:
    """Add columns to a table of an open store."""
    node = root[table]
    if hasattr(node, "dtype"):
        _replace_structured(root, table, columns)
        return
    names = node.attrs["column-order"]
    order = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from anndata.io import write_elem

        for name, values in columns.items():
            write_elem(node, name, values)
    added = [*order, *(name for name in columns if name not in order)]
    is_zarr = isinstance(node, zarr.Group)
    node.attrs["column-order"] = added if is_zarr else np.array(added, dtype=object)


def _replace_structured(root: Any, table: str, columns: Mapping[str, NDArray[Any]]) -> None:
    """Replace a structured array by one with more fields."""
    node = root[table]
    kept = drop_fields(np.asarray(node[:]), [*columns])
    new = append_fields(kept, [*columns], [*columns.values()], usemask=False)
    attrs = dict(node.attrs)
    del root[table]
    if isinstance(root, zarr.Group):
        root.create_array(table, data=new).attrs.update(attrs)
    else:
        root.create_dataset(table, data=new).attrs.update(attrs)
