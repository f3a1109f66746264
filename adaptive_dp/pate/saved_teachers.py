"""Saving trained teachers in a folder, so that a run which was stopped can resume.

Teachers are as private as their rows. A folder that only its owner can open holds

* ``key``: 32 secret random bytes, made with the folder;
* ``dataset``: the name of the one data set whose teachers are in it, and its unit column;
* for each teacher a file, named by an HMAC of all that it was trained on (rows, labels, model,
  parameters, seed), so that names reveal nothing without the key, and a teacher whose input has
  changed is trained anew. It begins with an HMAC of its content: nothing is unpickled that was not
  written with this key.

A file is written under a temporary name, and renamed when it is complete: a run that is killed, or
a power failure, loses the teachers that were being trained, and no more.

**The split.** To find its teachers again, a run must split the units as the last one did. So unit
number u of the data set goes to the teacher given by the u-th word of a keystream under the
folder's key, in every run; teachers' seeds are words of another. (A simulation derives both from
its seed.) Using one split in several runs is private: let A be the split, a function that the key
draws uniformly and independently of the data. Given A, the units that D and its neighbour D' share
have the same teachers in all runs (if one unit is missing, those of D' are renumbered, which shifts
their words; words are independent and identically distributed, so A has the same law on both).
Hence each run, given A and what earlier runs released, answers from ensembles that differ in one
teacher: its loss is what its certificate bounds, and losses of several runs compose as for any
fixed split. A itself is never released. This holds for one data set in several runs. If its units
or their order change, use a new folder: where two data sets number the same people differently, one
split puts units together that a neighbour would separate.
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
        # an extendable-output function: fewer words are a prefix of more
        self._bytes = hashlib.shake_256(key + b"words" + purpose.encode())

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the first ``count`` words, however often it is called."""
        # little-endian on every machine, so that a folder can be moved
        return np.frombuffer(self._bytes.digest(8 * count), dtype="<u8").astype(np.uint64)

    def __repr__(self) -> str:
        return "<private stream>"

    def __reduce__(self) -> Any:
        raise TypeError("a stream cannot be pickled: a copy would repeat its words")


@frozen
class Folder:
    """A folder of trained teachers.

    Parameters
    ----------
    path
        Its place.
    key
        The secret under which files are named and authenticated.
    """

    path: Path
    key: bytes = field(repr=False)

    def claim(self, dataset: str, unit: str | None = None) -> None:
        """Reserve the folder for one data set.

        Raises
        ------
        DataError
            If it has teachers of a data set with another name or other units, or is not writable.
        """
        # with another unit column the units, and so the split, are others
        dataset = dataset if unit is None else f"{dataset}, units by {unit}"
        owner_file = self.path / "dataset"
        if not owner_file.exists():
            try:
                write_file(owner_file, dataset.encode())
            except OSError as error:
                raise DataError(
                    f"the folder {str(self.path)!r} cannot be written to ({error.strerror})"
                ) from None
        # read back also where it was just written: another process may have been as quick
        owner = owner_file.read_text("utf-8", "replace")
        if owner != dataset:
            raise DataError(
                f"the folder {str(self.path)!r} holds teachers of {owner!r}; use another one for "
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
        """Return the name of a teacher's file: an HMAC of everything that it is trained on."""
        # a new version may train another model, so it has another name
        package = sys.modules.get(str(home(make)).partition(".")[0])
        versions = (sys.version_info[:2], np.__version__, getattr(package, "__version__", ""))
        settings = json.dumps(dict(parameters), sort_keys=True)
        # the label separates names from the tags of contents, which are made by the same key
        mac = hmac.new(self.key, b"name", hashlib.sha256)
        mac.update(repr((home(make), fingerprint(make), versions, settings, what)).encode())
        for array in arrays:
            # arrays of different types or shapes may have the same bytes
            mac.update(f"{array.dtype.str}{array.shape}".encode())
            mac.update(array.tobytes())
        return mac.hexdigest()

    def load(self, name: str) -> Any:
        """Return the teacher of that name; None if there is no file authenticated by the key."""
        with contextlib.suppress(Exception):  # a damaged file is ignored, its teacher trained anew
            content = (self.path / f"{name}{ENDING}").read_bytes()
            # authenticated before it is unpickled; the name is part of the tag, so files cannot be
            # exchanged
            if hmac.compare_digest(content[:TAG], self._tag(name, content[TAG:])):
                return pickle.loads(content[TAG:])
        return None

    def save(self, name: str, teacher: Any) -> None:
        """Write a teacher's file atomically; one that cannot be pickled or stored is skipped."""
        # saving only spares time: what fails here is trained anew in the next run
        with contextlib.suppress(Exception):
            content = _pickle(teacher)
            write_file(self.path / f"{name}{ENDING}", self._tag(name, content) + content)

    def _tag(self, name: str, content: bytes) -> bytes:
        return hmac.digest(self.key, b"content" + name.encode() + content, "sha256")


_CURRENT: ContextVar[Folder | None] = ContextVar("adaptive_dp_teachers", default=None)


def current_folder() -> Folder | None:
    """Return the folder of the enclosing `saved` block, or None."""
    return _CURRENT.get()


@contextlib.contextmanager
def saved(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Save trained teachers in a folder while a block runs, and reuse those that are there.

    The folder is private: it holds what was learned from each group of people, and the key that
    assigns people to groups. Delete it when it is no longer needed. All runs of one data set may
    use it; its units are then split once for all of them (the module's docstring proves why that is
    private). Units are known by their number, so that each run must be given the same rows in the
    same order: use a new folder when someone joins or leaves, or rows come in another order (a
    database returns them in any order unless it is told one), or else no certificate covers the
    runs together. Never use a folder that somebody else has made: its files are unpickled, which
    can run any code.

    Parameters
    ----------
    folder
        Its path; created if missing, and accessible to its owner alone.

    Raises
    ------
    DataError
        If it cannot be created, or others may open it.

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
    """Return the folder with its key; both are created if missing."""
    try:
        # where it is created here, others have no permissions from the start
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(path, os.stat(path), "folder")
        key = path / "key"
        if not key.exists():
            # of several processes that start at once, one makes the key and all read it
            write_file(key, os.urandom(TAG), new=True)
        # not followed: a link has open permissions of its own, and is refused
        _check_owner(path, os.lstat(key), "key in the folder")
        key_bytes = key.read_bytes()
        for partial in path.glob("*.part"):  # of a run that was killed
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"the folder {str(path)!r} cannot be used to save teachers ({error.strerror}); give a "
            "folder that you can write to"
        ) from None
    if len(key_bytes) != TAG:
        raise DataError(f"the key in the folder {str(path)!r} is damaged; use a new folder")
    return Folder(path, key_bytes)


def _check_owner(path: Path, status: os.stat_result, what: str) -> None:
    if not hasattr(os, "geteuid"):  # such a system has no modes
        return
    # any bit of group or others
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise DataError(
            f"the {what} {str(path)!r} belongs to another user or is accessible to others: "
            "teachers are private, and its files are unpickled; use a folder of your own, mode "
            "0700"
        )


def write_file(path: Path, content: bytes, *, new: bool = False) -> None:
    """Write a file that only its owner can read, atomically.

    Parameters
    ----------
    path
        Its place.
    content
        The bytes.
    new
        Keep a file that already exists.
    """
    # in the same folder, since a rename is atomic within one file system
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}.part")
    # O_EXCL: never into a file, or through a link, that somebody else has put there
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            # on disk before it gets its name, so that the name never stands for a part of the
            # content
            os.fsync(file.fileno())
        if new:
            with contextlib.suppress(FileExistsError):  # another process was first
                # a link fails where the name exists, while a rename would replace the first
                # process's key
                os.link(temporary, path)
        else:
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not every system lets one open a folder
        # the new name itself is on disk once the folder is
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
