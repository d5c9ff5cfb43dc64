"""Conditions on coordinates: as much of Python as compares them.

A stored selection says which condition its samples met, and whoever evaluates it anew answers that.
pandas would look up attributes and call them: to open somebody's result could run their code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

OPERATORS = {"and", "or", "not", "in", "True", "False", "None"}
PIECES = re.compile(
    r"""(?P<text>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|`(?P<quoted>[^`]*)`|(?P<sign>[&|])"""
    r"""|(?P<word>[^\W\d]\w*)"""
)
SIGNS = {"&": " and ", "|": " or "}  # which in Python bind tighter than comparisons
ALLOWED = (
    *(ast.Expression, ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Invert, ast.UAdd, ast.USub),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
)
KINDS: dict[type[ast.AST], str] = {
    ast.Attribute: "an attribute",
    ast.Call: "a call",
    ast.Subscript: "a subscript",
}


@dataclass(frozen=True)
class Condition:
    """A condition of which nothing is left but names, values and operators.

    Attributes
    ----------
    text : what pandas is asked.
    names : its names, and the coordinates that they stand for.
    """

    text: str
    names: dict[str, str]

    def met(self, coordinates: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """(m,) where it holds, given m values of each coordinate.

        Raises ValueError where it is not true or false for each, and what pandas raises.
        """
        columns = {name: coordinates[of] for name, of in self.names.items()}
        table = pd.DataFrame(columns)
        met = np.asarray(table.eval(self.text, engine="python", local_dict={}, global_dict={}))
        if met.dtype != bool or met.shape != (len(table),):
            raise ValueError("it is not true or false for each sample")
        return met


def parsed(condition: str, known: Sequence[str]) -> Condition:
    """A condition on the coordinates ``known``; in backticks they may have any name.

    Powers are not allowed: a few letters of them would be computed for ever.

    Raises ValueError for whatever could do more than compare, and for what is no condition.
    """
    prefix = "quoted"
    while any(prefix in name for name in known):
        prefix += "_"
    quoted: dict[str, str] = {}

    def plainly(piece: re.Match[str]) -> str:
        name, sign = piece["quoted"], piece["sign"]
        if sign is not None:
            return SIGNS[sign]
        word = piece["word"]
        if name is None and iskeyword(word or "") and word in known and word not in OPERATORS:
            name = word
        if name is None:
            return piece[0]
        return quoted.setdefault(name, f"{prefix}{len(quoted)}")

    try:
        tree = ast.parse(PIECES.sub(plainly, condition).strip(), mode="eval")
    except SyntaxError as error:
        rest = (error.text or "")[max((error.offset or 0) - 1, 0) :].strip()
        raise ValueError(error.msg + (f" at {rest!r}" if rest else "")) from error
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        if not isinstance(node, ALLOWED) or not isinstance(value, str | int | float | None):
            part, kind = ast.unparse(node), KINDS.get(type(node), type(node).__name__)
            said = f"{part or 'an operator in it'} is {kind}"
            raise ValueError(f"{said}; conditions only compare coordinates and values")
    stands_for = {placeholder: name for name, placeholder in quoted.items()}
    used = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    # pandas has a look at backticks of its own; in what ast writes they are in texts alone.
    text = ast.unparse(tree).replace("`", r"\x60")
    return Condition(text, {name: stands_for.get(name, name) for name in used})
