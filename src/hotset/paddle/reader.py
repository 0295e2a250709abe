"""What paddle's DataLoader lacks: where it has no workers, it reads in a thread, and waits for ever if that ends with an error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["errors_end_the_reading"]


@contextmanager
def errors_end_the_reading() -> Iterator[None]:
    """Around what paddle's thread calls. The thread prints our error, and the loop over the DataLoader ends with a SystemError
    that says that the reader raised one. Without effect in workers, whose errors arrive as they are.
    """
    try:
        yield
    except Exception:
        frame = sys._getframe()
        while frame is not None:
            if frame.f_code.co_name == "_thread_loop":
                # The way out that paddle itself takes for errors of a later step (3.3).
                leave = getattr(frame.f_locals.get("self"), "_exit_thread_unexpectedly", None)
                if leave is not None:
                    leave()
            frame = frame.f_back  # type: ignore[assignment]
        raise
