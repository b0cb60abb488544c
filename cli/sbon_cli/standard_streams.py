"""Standard input, output and error where they are not as usual: closed, or on a disk that is full."""

from __future__ import annotations

import errno
import os
import sys

_UNWRITABLE = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)


def open_closed_streams() -> None:
    """Whoever starts us without one of the three reads nothing, or is told that results cannot be written."""
    for name, access, mode in (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, access), mode))  # noqa: SIM115 -- for as long as we run


def is_of_output(error: OSError) -> bool:
    """Whether writing results failed: of files, errors bear a name."""
    return error.filename is None and error.errno in _UNWRITABLE


def abandon_output() -> None:
    """What is still to be written goes nowhere, so that the interpreter does not complain about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
