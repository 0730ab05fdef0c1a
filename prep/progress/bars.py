"""Bars of terminals and of notebooks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from tqdm.asyncio import tqdm_asyncio


def shows_bars(stream: TextIO) -> bool:
    """Return whether progress on this stream is a bar: it is a terminal, or the output of a notebook."""
    return stream.isatty() or (stream is sys.stderr and _is_in_notebook())


def bar_class() -> type[tqdm_asyncio[object]]:
    """Return the bars of tqdm that fit: those of the notebook, or text."""
    # not at the top: it imports asyncio, which most commands do not need
    from tqdm.auto import tqdm

    return cast("type[tqdm_asyncio[object]]", tqdm)


def _is_in_notebook() -> bool:
    """Return whether tqdm shows the bars of a notebook, which also requires ipywidgets."""
    if "ipykernel" not in sys.modules:
        return False
    from tqdm.asyncio import tqdm_asyncio

    return bar_class() is not tqdm_asyncio
