"""Every method, and one that is added."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import every_score, planted
from reference import reference

from kmufs_stream import LanczosOptions, RequestError, decompose
from kmufs_stream.factors.methods import METHODS
from kmufs_stream.factors.methods.leading import Leading


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_same(method: str) -> None:
    X = planted(200, 12)
    factor = decompose(X, 3, method=method, lanczos=LanczosOptions(tol=1e-10))
    assert factor.method == method
    np.testing.assert_allclose(every_score(factor, 3), reference(X).scores(3), atol=1e-8)


def test_a_method_that_is_added_runs_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def run(*given: Any) -> Leading:
        ran.append(given[0].k)
        return METHODS["gram"].run(*given)

    monkeypatch.setitem(METHODS, "toy", replace(METHODS["gram"], run=run))
    assert decompose(planted(60, 5), 2, method="toy").method == "toy"
    assert ran == [2]
    with pytest.raises(RequestError, match="'toy'"):
        decompose(planted(60, 5), 2, method="toys")
