"""Keeping trained teachers in a folder, so that a run which was stopped goes on where it was.

Teachers are as private as their rows. A folder that only its owner can open holds

* ``key``: 32 secret random bytes, made with the folder;
* ``dataset``: the name of the one data set whose teachers lie there, and its unit column;
* for each teacher a file, named by an HMAC of all that it was trained on (rows, labels, model,
  parameters, seed), so that names tell nothing to who does not know the key, and what has changed
  is trained anew. It begins with an HMAC of its content: nothing is unpickled that was not written
  with this key.

A file is written beside its place, and moved there when it is complete: whoever stops the run, be
it the machine's power, loses the teachers that were being trained, and no more.

**The split.** To find its teachers again, a run must split the units as the last one did. So the
unit with number u of the data set goes to the teacher that the u-th word of a keystream under the
folder's key says, in every run; teachers' seeds are words of another. (A simulation has all this
from its seed.) To use one split in several runs is private: let A be the split, a function that
the key draws uniformly and independently of the data. Given A, the units that D and its neighbour
D' share have the same teachers in all runs on them (those of D' are numbered anew if one is
missing, which moves their words along; words are independent and equal in law, so that A has the
same law on both). Hence each run, given A and what earlier runs released, answers from ensembles of
which one teacher differs: it costs what its certificate says, and costs of several runs compose as
they do for any one fixed split. A itself is never released. This is said of one data set in
several runs. If its units change, or their order, use a new folder: where two data sets number the
same people otherwise, one split ties together whom neighbours untie.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import pickle
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DataError
from adaptive_dp.graph.registry import fingerprint, home
from adaptive_dp.noise.stream import Stream

TAG = 32
"""Bytes of an HMAC-SHA256."""

ENDING = ".teacher"


class Keystream(Stream):
    """Words under a key: equal keys and purposes give equal words."""

    def __init__(self, key: bytes, purpose: str) -> None:
        self._bytes = hashlib.shake_256(key + b"words" + purpose.encode())

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the first ``count`` words, however often it is called."""
        return np.frombuffer(self._bytes.digest(8 * count), dtype="<u8").astype(np.uint64)

    def __repr__(self) -> str:
        return "<private stream>"

    def __reduce__(self) -> Any:
        raise TypeError("a stream cannot be pickled: a copy would repeat its words")


@frozen
class Folder:
    """A folder of trained teachers; see the module."""

    path: Path
    key: bytes = field(repr=False)

    def claim(self, dataset: str, unit: str | None = None) -> None:
        """Note whose teachers lie here.

        Raises
        ------
        DataError
            If they are of a data set with another name or other units, or nothing can be written.
        """
        dataset = dataset if unit is None else f"{dataset}, units by {unit}"
        note = self.path / "dataset"
        if not note.exists():
            try:
                write_file(note, dataset.encode())
            except OSError as error:
                raise DataError(
                    f"the folder {str(self.path)!r} cannot be written to ({error.strerror})"
                ) from None
        of = note.read_text("utf-8", "replace")
        if of != dataset:
            raise DataError(
                f"the folder {str(self.path)!r} keeps teachers of {of!r}; use another one for "
                f"{dataset!r}: a folder splits the units of one data set"
            )

    def stream(self, purpose: str) -> Keystream:
        """Return the words that all runs with this folder draw for a purpose."""
        return Keystream(self.key, purpose)

    def name(
        self,
        make: Callable[..., Any],
        parameters: Mapping[str, Any],
        what: tuple[Any, ...],
        arrays: Sequence[NDArray[Any]],
    ) -> str:
        """Return the name of a teacher's file: an HMAC of all that it is trained from."""
        package = sys.modules.get(str(home(make)).partition(".")[0])
        versions = (sys.version_info[:2], np.__version__, getattr(package, "__version__", ""))
        settings = json.dumps(dict(parameters), sort_keys=True)
        found = hmac.new(self.key, b"name", hashlib.sha256)
        found.update(repr((home(make), fingerprint(make), versions, settings, what)).encode())
        for array in arrays:
            found.update(f"{array.dtype.str}{array.shape}".encode())
            found.update(array.tobytes())
        return found.hexdigest()

    def load(self, name: str) -> Any:
        """Return the teacher of that name; None if there is none that was written with the key."""
        with contextlib.suppress(Exception):  # what is damaged is trained anew
            content = (self.path / f"{name}{ENDING}").read_bytes()
            if hmac.compare_digest(content[:TAG], self._tag(name, content[TAG:])):
                return pickle.loads(content[TAG:])
        return None

    def save(self, name: str, teacher: Any) -> None:
        """Write a teacher, so that it is there as a whole or not at all.

        One that cannot be pickled, or for which there is no space, is not kept.
        """
        with contextlib.suppress(Exception):
            content = _pickle(teacher)
            write_file(self.path / f"{name}{ENDING}", self._tag(name, content) + content)

    def _tag(self, name: str, content: bytes) -> bytes:
        return hmac.digest(self.key, b"content" + name.encode() + content, "sha256")


_CURRENT: ContextVar[Folder | None] = ContextVar("adaptive_dp_teachers", default=None)


def current_folder() -> Folder | None:
    """Return the folder of the block that the run is in."""
    return _CURRENT.get()


@contextlib.contextmanager
def saved(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Keep trained teachers in a folder while a block runs, and take those that lie there.

    The folder is private: it holds what was learned from each group of people, and the key to who
    is in which. Delete it when it is no longer needed. All runs of one data set may use it; its
    units are then split once for all of them (see `adaptive_dp.pate.saved_teachers`, the module,
    for why
    that is private). Units are known by their number, so that each run must be given the same rows
    in the same order: use a new folder when someone joins or leaves, or rows come in another order
    (a database returns them in any, unless it is told), or else no certificate covers the runs
    together. Never use a folder that somebody else has made: what lies in it is unpickled, which
    can run any code.

    Parameters
    ----------
    folder
        Its path; it is made if it is not there, and nobody else may open it.

    Raises
    ------
    DataError
        If it cannot be made, or others may open it.

    Examples
    --------
    >>> import tempfile
    >>> with saved(tempfile.mkdtemp()):
    ...     pass  # plan.run(people=frame, pool=points)
    """
    token = _CURRENT.set(open_folder(Path(folder)))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def open_folder(path: Path) -> Folder:
    """Return the folder, with a key of its own, made anew where it is not there."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(path, os.stat(path), "folder")
        key = path / "key"
        if not key.exists():
            write_file(key, os.urandom(TAG), new=True)
        _check_owner(path, os.lstat(key), "key in the folder")
        found = key.read_bytes()
        for left in path.glob("*.part"):  # of a run that was killed
            left.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"the folder {str(path)!r} cannot be used to keep teachers ({error.strerror}); give a "
            "folder that you can write to"
        ) from None
    if len(found) != TAG:
        raise DataError(f"the key in the folder {str(path)!r} is damaged; use a new folder")
    return Folder(path, found)


def _check_owner(path: Path, found: os.stat_result, what: str) -> None:
    if not hasattr(os, "geteuid"):  # such a system has no modes
        return
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise DataError(
            f"the {what} {str(path)!r} belongs to somebody else or is open to others: teachers are "
            "private, and what lies there is unpickled; use a folder of your own, mode 0700"
        )


def write_file(path: Path, content: bytes, *, new: bool = False) -> None:
    """Write a file that only its owner can read, as a whole or not at all.

    Parameters
    ----------
    path
        Its place.
    content
        What is written.
    new
        Leave the file that is there already.
    """
    beside = path.with_name(f"{path.name}.{os.urandom(8).hex()}.part")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if new:
            with contextlib.suppress(FileExistsError):  # another process was first
                os.link(beside, path)
        else:
            os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not every system lets one open a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _pickle(teacher: Any) -> bytes:
    try:
        return pickle.dumps(teacher)
    except Exception:  # a function inside a function
        import cloudpickle

        return cloudpickle.dumps(teacher)  # type: ignore[no-any-return]
