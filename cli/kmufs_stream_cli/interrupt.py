"""Turn SIGINT and SIGTERM into one exception in the main thread, raised once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupted(BaseException):
    """The user or the system asks to stop. Not an Exception, so that nothing else handles it."""


@contextlib.contextmanager
def raised(*, last: bool = False) -> Iterator[None]:
    """Raise Interrupted in the block for the first SIGINT or SIGTERM; ignore later ones.

    The clean-up that follows is short and must not be interrupted. A signal that is ignored from
    outside (nohup) stays ignored. With ``last`` the process ends after the block: a signal then
    ends it at once, without a traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {s: signal.getsignal(s) for s in signals}

    def stop(number: int, frame: FrameType | None) -> None:
        for s in signals:
            signal.signal(s, signal.SIG_IGN)
        raise Interrupted

    for s, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(s, stop)
    try:
        yield
    finally:
        for s, handler in before.items():
            ended = last and handler is not signal.SIG_IGN
            signal.signal(s, signal.SIG_DFL if ended else handler)
