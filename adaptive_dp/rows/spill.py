"""Long arrays in a temporary file, so that they need no memory of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHORT = 2**26
"""Arrays of so many bytes, 64 MiB, are kept in memory."""


def collected(pieces: Iterable[NDArray[Any]], empty: NDArray[Any]) -> NDArray[Any]:
    """Return pieces one after the other, as one array that is not to be written to.

    A long one lies in a temporary file without a name, which nobody else can open and which is
    gone when the array is, however the process ends. (It is on the disk that ``TMPDIR`` says, in
    plain bytes: that disk must be as trusted as the memory.)

    Parameters
    ----------
    pieces
        Arrays that differ in their first dimension alone.
    empty
        An array of no rows, of the type and the other dimensions of all.
    """
    held, size = [empty], 0
    left = iter(pieces)
    for piece in left:
        held.append(np.asarray(piece, dtype=empty.dtype))
        size += held[-1].nbytes
        if size > SHORT:
            break
    if size <= SHORT:
        return np.concatenate(held)
    length = 0
    with tempfile.TemporaryFile() as file:  # the map keeps it, once it is closed
        for piece in chain(held, left):
            found = np.ascontiguousarray(piece, dtype=empty.dtype)
            length += len(found)
            file.write(found.data.cast("B") if found.size else b"")
        file.flush()
        return np.memmap(file, dtype=empty.dtype, mode="r", shape=(length, *empty.shape[1:]))
