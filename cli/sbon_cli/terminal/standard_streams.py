"""Closed standard streams, and output to a full disk."""

import errno
import os
import sys

_UNWRITABLE = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)


def open_closed_streams() -> None:
    """Open missing standard streams: input is then empty, and output fails with an error."""
    for name, access, mode in (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, access), mode))  # noqa: SIM115 -- for as long as we run


def is_of_output(error: OSError) -> bool:
    """Whether results cannot be written, or the file that the error names."""
    return error.errno in _UNWRITABLE


def abandon_output() -> None:
    """Discard the remaining output, so that the interpreter reports no error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
