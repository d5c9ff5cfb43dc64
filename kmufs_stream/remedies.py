"""Remedies for what a Python function was given: in which of its arguments their options go."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from kmufs_stream.errors import RequestError
from kmufs_stream.factors.factor import Factor
from kmufs_stream.options import AdmmOptions, LanczosOptions, Screening
from kmufs_stream.sources import Matrix, open_matrix

NAMED = re.compile(r"`((\w+)(?:=[^`]*)?)`")  # as messages name options: `h` or `h=3`
ARGUMENTS = {"screening": Screening, "lanczos": LanczosOptions, "options": AdmmOptions}

P = ParamSpec("P")
R = TypeVar("R")


def placing_options(function: Callable[P, R]) -> Callable[P, R]:
    """Where a remedy names options that are none of the function's own, tell where they go.

    Nothing is told of data opened already: whoever opened them, such as the command line, has these
    options.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def placing(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except RequestError as error:
            data = signature.bind(*args, **kwargs).arguments.get("data")
            if data is not None and not isinstance(data, Matrix | Factor):
                error.remedy += _places(error.remedy, set(signature.parameters))
            raise

    return placing


def _places(remedy: str, own: set[str]) -> str:
    """The end of a remedy that tells where its options go."""
    named = {name: said if "=" in said else f"{said}=..." for said, name in NAMED.findall(remedy)}
    foreign = {name: said for name, said in named.items() if name not in own}
    told = []
    opening = [said for name, said in foreign.items() if name in _options_of(open_matrix)]
    if opening:
        told.append(f"`open_matrix(data, {opening[0]})` in place of the data")
    for argument, kind in ARGUMENTS.items():
        said = [said for name, said in foreign.items() if name in _options_of(kind)]
        if said and argument in own:
            told.append(f"`{argument}={kind.__name__}({said[0]})`")
    return f" In Python give {', or '.join(told)}." if told else ""


def _options_of(function: Callable[..., Any]) -> set[str]:
    return {*inspect.signature(function).parameters} - {"data"}
