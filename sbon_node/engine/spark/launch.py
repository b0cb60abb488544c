"""Replacement for Spark's Python processes: asks the zygote for a fork, and waits for it; see :mod:`.zygote`.

Runs without site-packages, to start fast. If no zygote takes the task it becomes that Python process itself.
"""

from __future__ import annotations

import _socket
import marshal
import os
import sys
from array import array


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[0] != "-m":
        os.execv(sys.executable, [sys.executable, *arguments])  # Spark asks for its version.
    zygote = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    task = marshal.dumps((arguments, dict(os.environ), os.getcwd()))
    streams = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array("i", (0, 1, 2)))]
    try:
        zygote.connect(os.environ["SBON_ZYGOTE"])
        zygote.sendmsg([len(task).to_bytes(4, "big")], streams)
        zygote.sendall(task)
        if zygote.recv(1) != b"+":
            raise OSError("it does not take the task")
    except OSError as error:
        print(f"no zygote, so {arguments} starts slowly: {error}", file=sys.stderr, flush=True)
        os.execv(sys.executable, [sys.executable, *arguments])
    status = zygote.recv(4)
    return int.from_bytes(status, "big") if status else 1


if __name__ == "__main__":
    sys.exit(main())
