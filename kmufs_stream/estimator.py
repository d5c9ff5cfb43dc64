"""Select features as a scikit-learn transformer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import dask.array as da
import numpy as np
import pandas as pd
import scipy.sparse
import xarray as xr
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from kmufs_stream.decomposition import decompose
from kmufs_stream.errors import RequestError, Text
from kmufs_stream.factors.batches import Batches
from kmufs_stream.factors.factor import Factor, as_whole, check_h
from kmufs_stream.factors.solving import check_solver, solve
from kmufs_stream.options import AdmmOptions, SolverName
from kmufs_stream.solvers.scores import feature_scores
from kmufs_stream.solvers.solution import Solution
from kmufs_stream.sources import Matrix, open_matrix
from kmufs_stream.sources.arrays import check_columns
from kmufs_stream.sources.id_columns import note_of_whole_numbers
from kmufs_stream.sources.layout import dense
from kmufs_stream.typing import Array, Bool, Float

DENSE_BYTES = 16_000_000  # of the part of a sparse table that is made dense at a time


class KMeansUFS(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Choose, without labels, the h features that best separate k clusters.

    Takes NumPy and SciPy sparse arrays, pandas frames, and Dask and xarray arrays, which are read
    block by block and transformed lazily. ``partial_fit`` takes rows in batches and keeps p x p
    sums of them; features are chosen when they are first asked for, up to rounding as by ``fit`` on
    all rows at once.

    Parameters
    ----------
    k : int, default 2
        Number of clusters.
    h : int, optional
        Number of features to choose; half of those that vary by default.
    solver : {'admm', 'consensus', 'css', 'exact', 'joint'}, default 'admm'
        See :func:`kmufs_stream.select`.

    Attributes
    ----------
    n_features_in_ : int
        Number of features of the fitted table.
    feature_names_in_ : object array, shape (p,)
        Their names, if the table has any.
    factor_ : Factor
        Factor of all rows so far.
    scores_ : float64 array, shape (p,)
        Share of each feature's variance that the leading k components explain; NaN for constant
        features.
    solution_ : Solution
        Solution of the solver, whose indices count the features that vary.

    Examples
    --------
    >>> import numpy as np
    >>> from kmufs_stream import KMeansUFS
    >>> X = np.random.default_rng(0).normal(size=(100, 6))
    >>> KMeansUFS(k=2, h=3).fit_transform(X).shape
    (100, 3)
    """

    n_features_in_: int
    feature_names_in_: Array
    _batches: Batches | None
    _found: tuple[Factor, Solution] | None

    def __init__(self, k: int = 2, h: int | None = None, solver: SolverName = "admm") -> None:
        self.k = k
        self.h = h
        self.solver = solver

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose features from a samples x features table; y is ignored.

        Raises ValueError for missing values, and RequestError, which is one, as
        :func:`kmufs_stream.select` does.
        """
        with self._explaining_options():
            matrix = self._open(X, reset=True, least=2)
            self._batches = None
            self._found = self._solved(decompose(matrix, self.k))
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add rows, also after those of ``fit``; y is ignored.

        Raises RequestError after a ``fit`` of more than several thousand features, which keeps no
        sums to which rows could be added.
        """
        first = not self.__sklearn_is_fitted__()
        with self._explaining_options():
            matrix = self._open(X, reset=first, least=1)
        rows = dense(matrix.rows.read(0, matrix.shape[0]))
        batches = Batches.before(rows) if first else self._batches
        if batches is None:
            if self.factor_.correlation is None:
                raise RequestError(
                    "not_incremental",
                    f"After fit() of {matrix.shape[1]} features no rows can follow.",
                    "Give the first rows to partial_fit() too, of a new estimator.",
                )
            batches = Batches.after(self.factor_)
        batches.add(rows)
        self._batches, self._found = batches, None
        return self

    def transform(self, X: Any) -> Any:
        """Return the chosen columns, of Dask and xarray arrays lazily.

        Raises ValueError if the number of features is not that of the fitted table.
        """
        if not isinstance(X, da.Array | xr.DataArray):
            return super().transform(X)
        check_is_fitted(self)
        matrix = self._open(X, reset=False, least=1)
        chosen = self.get_support(indices=True)
        if isinstance(X, da.Array):
            return X[:, chosen]
        return X.isel({matrix.metadata.feature_dim: chosen})

    @property
    def factor_(self) -> Factor:
        """Factor of all rows so far."""
        return self._answer()[0]

    @property
    def solution_(self) -> Solution:
        """Solution of the solver."""
        return self._answer()[1]

    @property
    def scores_(self) -> Float:
        """(p,) scores, NaN for constant features."""
        factor = self.factor_
        scores = np.full(len(factor.features.mean), np.nan)
        scores[factor.features.usable] = feature_scores(
            factor.components, factor.eigenvalues, self.k
        )
        return scores

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_found")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _get_support_mask(self) -> Bool:
        factor, solution = self._answer()
        mask = np.zeros(len(factor.features.mean), bool)
        mask[factor.features.usable[solution.selected]] = True
        return mask

    def _answer(self) -> tuple[Factor, Solution]:
        """Return the factor and its solution; after partial_fit, compute them first."""
        check_is_fitted(self)
        if self._found is None:
            assert self._batches is not None
            with self._explaining_options():
                self._found = self._solved(self._batches.factor(as_whole("k", self.k)))
        return self._found

    def _solved(self, factor: Factor) -> tuple[Factor, Solution]:
        usable = len(factor.features.usable)
        h = max(usable // 2, 1) if self.h is None else as_whole("h", self.h)
        check_h(h, usable, "usable features")
        return factor, solve(factor, factor.k, h, self.solver, AdmmOptions())

    @contextmanager
    def _explaining_options(self) -> Iterator[None]:
        """Add to hints that name other options than these who takes them."""
        try:
            yield
        except RequestError as error:
            if not self.get_params().keys() >= {*Text("{}", error.remedy).parameters}:
                error.remedy += " KMeansUFS has no such option; kmufs_stream.select has."
            raise

    def _open(self, X: Any, *, reset: bool, least: int) -> Matrix:
        """Open a table and check it, against the one that was fitted unless ``reset``."""
        check_solver(self.solver)
        as_whole("k", self.k)
        if isinstance(X, da.Array | xr.DataArray):
            return self._open_lazy(X, reset=reset)
        if isinstance(X, pd.DataFrame):
            check_columns(X)
            if reset:
                _note_whole_numbers(X)
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            ensure_min_samples=least,
            ensure_min_features=self.k if reset else 1,
        )
        return open_matrix(_dense_blocks(X) if scipy.sparse.issparse(X) else X)

    def _open_lazy(self, X: da.Array | xr.DataArray, *, reset: bool) -> Matrix:
        matrix = open_matrix(X)
        names = pd.RangeIndex(matrix.shape[1])
        if matrix.labels is not None and all(isinstance(label, str) for label in matrix.labels):
            names = pd.Index(matrix.labels)
        validate_data(self, pd.DataFrame(columns=names), reset=reset, skip_check_array=True)
        return matrix


def _note_whole_numbers(X: pd.DataFrame) -> None:
    dtypes = [dtype for dtype in X.dtypes if isinstance(dtype, np.dtype)]
    if len(dtypes) == X.shape[1]:
        columns, advice = list(X.columns), "leave those columns out"
        note = note_of_whole_numbers(columns, dtypes, range(len(dtypes)), advice)
        if note is not None:
            warnings.warn(note, stacklevel=4)


def _dense_blocks(X: Any) -> da.Array:
    """Wrap a CSR table in a Dask array whose blocks are made dense as they are read."""
    rows = max(DENSE_BYTES // (X.shape[1] * X.dtype.itemsize), 1)
    blocks = da.from_array(X, (rows, X.shape[1]), name=False, asarray=False)  # type: ignore[no-untyped-call]
    dense: da.Array = blocks.map_blocks(lambda block: block.toarray(), meta=np.empty((0, 0)))
    return dense
