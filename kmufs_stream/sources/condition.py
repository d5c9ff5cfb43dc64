"""Parse conditions on coordinates, which may compare values and do nothing else.

A stored selection holds the condition that its samples met, which is evaluated again with it.
pandas would look up attributes and call them, so opening a stranger's result could run their code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd
from numpy.typing import NDArray

OPERATORS = {"and", "or", "not", "in", "True", "False", "None"}
PIECES = re.compile(
    r"""(?P<text>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|`(?P<quoted>[^`]*)`|(?P<sign>&&?|\|\|?)"""
    r"""|(?P<word>[^\W\d][\w\u0300-\u036f]*)"""
)
SIGNS = {"&": " and ", "|": " or "}  # in Python they bind tighter than comparisons
ALLOWED = (
    *(ast.Expression, ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Invert, ast.UAdd, ast.USub),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
)
NUMBERS = "biufmM"  # kinds of dtypes allowed in arithmetic


@dataclass(frozen=True)
class Condition:
    """A condition that consists of names, values and operators only.

    Attributes
    ----------
    text : expression for pandas.
    names : its names, and the coordinates that they stand for.
    computed : names used in arithmetic.
    """

    text: str
    names: dict[str, str]
    computed: tuple[str, ...]

    def met(self, coordinates: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Evaluate the condition for m values of each coordinate.

        Returns (m,). Raises ValueError unless each result is true or false, and what pandas raises.
        """
        columns = {name: coordinates[of] for name, of in self.names.items()}
        for name in self.computed:  # a multiplied text may fill all memory
            if columns[name].dtype.kind not in NUMBERS:
                raise ValueError(f"{self.names[name]} holds text, which can only be compared")
        table = pd.DataFrame(columns)
        met = np.asarray(table.eval(self.text, engine="python", local_dict={}, global_dict={}))
        if met.dtype != bool or met.shape != (len(table),):
            raise ValueError("it is not true or false for each sample")
        return met


def parsed(condition: str, known: Sequence[str]) -> Condition:
    """Parse a condition on the coordinates ``known``; names in backticks may be any text.

    Powers and arithmetic with texts are not allowed, as a short condition could take for ever.

    Raises ValueError for whatever does more than compare, and for invalid syntax.
    """
    prefix = "quoted"
    while any(prefix in name for name in known):
        prefix += "_"
    alike = {normalize("NFKC", name): name for name in known}  # to Python, which reads names so
    quoted: dict[str, str] = {}

    def plainly(piece: re.Match[str]) -> str:
        name, sign, word = piece["quoted"], piece["sign"], piece["word"]
        if sign is not None:
            return SIGNS[sign[0]]
        if word is not None and word not in OPERATORS:
            name = word if word in known else alike.get(normalize("NFKC", word))
        if name is None:
            return piece[0]
        return f" {quoted.setdefault(name, f'{prefix}{len(quoted)}')} "

    def shown(text: str) -> str:
        names = list(quoted)
        return re.sub(rf"\b{prefix}(\d+)\b", lambda placed: names[int(placed[1])], text)

    try:
        tree = ast.parse(PIECES.sub(plainly, condition).strip(), mode="eval")
    except SyntaxError as error:
        rest = shown((error.text or "")[max((error.offset or 0) - 1, 0) :].strip())
        raise ValueError(error.msg + (f" at {rest!r}" if rest else "")) from error
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        if not isinstance(node, ALLOWED) or not isinstance(value, str | int | float | None):
            said = f"{shown(ast.unparse(node)) or 'an operator in it'} is {type(node).__name__}"
            raise ValueError(f"{said}; conditions only compare coordinates and values")
    computed: dict[str, None] = {}
    for part in (part for node in ast.walk(tree) for part in _operands(node)):
        if isinstance(part, ast.Name):
            computed[part.id] = None
        elif not isinstance(part, ast.Constant) or not isinstance(part.value, int | float):
            raise ValueError(
                f"{shown(ast.unparse(part))} is not a number, and can only be compared"
            )
    stands_for = {placeholder: name for name, placeholder in quoted.items()}
    used = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    # pandas interprets backticks; in what ast writes they are in texts only.
    text = ast.unparse(tree).replace("`", r"\x60")
    names = {name: stands_for.get(name, name) for name in used}
    return Condition(text, names, tuple(computed))


def _operands(node: ast.AST) -> Iterator[ast.expr]:
    """Operands of arithmetic other than nested arithmetic, which is checked itself, and truths."""
    if isinstance(node, ast.BinOp):
        for part in (node.left, node.right):
            while isinstance(part, ast.UnaryOp):
                part = part.operand
            if not isinstance(part, ast.BinOp | ast.Compare | ast.BoolOp):
                yield part
