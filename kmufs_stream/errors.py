"""What can go wrong, as the user is told it."""

from __future__ import annotations

from typing import Any


class KmufsError(Exception):
    """An error with a code for machines, a message that names the thing, and a remedy.

    ``exit_code`` is what the command line ends with: 2 where the request cannot be met as it
    stands, 1 where something broke on the way.
    """

    exit_code = 1

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message

    def __reduce__(self) -> tuple[type[KmufsError], tuple[Any, ...]]:
        return type(self), (self.code, self.message, self.remedy)


class RequestError(KmufsError, ValueError):
    """The request cannot be met: bad input, unknown name, does not fit in memory.

    A ValueError too: what libraries such as scikit-learn expect of bad input.
    """

    exit_code = 2


class BrokenError(KmufsError):
    """Something broke while a sound request ran: a corrupt chunk, a lost store, a full disk.

    ``chunk`` is the key of the stored chunk that could not be read, where that is what broke.
    """

    exit_code = 1

    def __init__(self, code: str, message: str, remedy: str, chunk: str | None = None) -> None:
        super().__init__(code, message, remedy)
        self.chunk = chunk

    def __reduce__(self) -> tuple[type[BrokenError], tuple[Any, ...]]:
        return type(self), (self.code, self.message, self.remedy, self.chunk)
