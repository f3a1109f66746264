"""Whether a file is what it was: passes over it must read the same rows."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from adaptive_dp.rows.reading import SchemaError


@frozen
class Stamp:
    """A file's size in bytes, and when it was last written, in nanoseconds."""

    size: int
    written: int

    def check(self, path: Path) -> None:
        """Refuse a file that has changed since.

        Which rows are kept is known by position, so those of a changed file would be others.
        """
        if stamped(path) != self:
            raise SchemaError(f"{path.name} has changed since it was opened")


def stamped(path: Path) -> Stamp:
    """Return a file's stamp.

    Raises
    ------
    SchemaError
        If there is no such file.
    """
    try:
        found = path.stat()
    except OSError:
        raise SchemaError(f"there is no file {path}") from None
    return Stamp(found.st_size, found.st_mtime_ns)
