"""The key beside a file of judgements: random bytes that secrets derive from, and the lock of the one server."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_N_BYTES = 32


class KeyFile:
    """A key file, made if it is not there, and locked until it is closed or its process ends.

    Parameters
    ----------
    judgements : Path
        The file of judgements, beside which it is.
    """

    def __init__(self, judgements: Path) -> None:
        self.path = Path(f"{judgements}-key")
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        try:
            self._descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise type(error)(
                f"can't open the key file {self.path}: {error.strerror}. It must be a file of yours, not a link; check "
                "the permissions."
            ) from error
        self._is_new = False
        try:
            self._lock(judgements)
            self._check()
            self.key = self._read_or_make()
        except BaseException:
            self.close()
            raise

    def close(self, *, discard_new: bool = False) -> None:
        """Unlock and close it; a key that was made just now may be removed, where nothing came of it."""
        if discard_new and self._is_new:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _lock(self, judgements: Path) -> None:
        if sys.platform == "win32":
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{judgements} is open in another `closefar label`: one server at a time writes to a file. Use its "
                "address, stop it, or choose another file."
            ) from None
        except OSError:  # where files can't be locked, as on some network disks
            return

    def _check(self) -> None:
        """Refuse a key that others can read, or may have put there."""
        if sys.platform == "win32":
            return
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(
                f"the key file {self.path} must be a file of yours. Remove it, or choose another name."
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(
                f"the key file {self.path} must be readable by you alone, since whoever reads it can answer for "
                f"everybody; its mode is {stat.S_IMODE(found.st_mode):o}. Remove it, so that a new key is made, and "
                "hand out the new addresses."
            )

    def _read_or_make(self) -> bytes:
        key = os.read(self._descriptor, _N_BYTES + 1)
        if not key:
            self._is_new = True
            key = secrets.token_bytes(_N_BYTES)
            os.write(self._descriptor, key)
            os.fsync(self._descriptor)
            _sync_folder(self.path.parent)
        if len(key) != _N_BYTES:
            raise ValueError(
                f"the key file {self.path} must have {_N_BYTES} bytes; it has {len(key)} or more. Remove it, so that a "
                "new key is made, and hand out the new addresses."
            )
        return key


def _sync_folder(folder: Path) -> None:
    """Have the name of a new file on the disk too."""
    with contextlib.suppress(OSError):  # not every system knows this of folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
