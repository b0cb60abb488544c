"""Replacement for Spark's Python processes: asks the zygote for a fork, and waits for it; see :mod:`.zygote`.

Runs without site-packages, to start fast. It waits as a shell, which takes three megabytes less than Python. If no zygote takes
the task it becomes that Python process itself.
"""

import _socket
import marshal
import os
import sys
from array import array

WAIT = 'read -r status <&3 && exit "$status"; exit 1'
"""Shell that exits as the fork does; the zygote sends its status as a line."""


def main() -> None:
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
    if zygote.fileno() != 3:
        os.dup2(zygote.fileno(), 3)
    os.set_inheritable(3, True)
    os.execv("/bin/sh", ["sh", "-c", WAIT])


if __name__ == "__main__":
    main()
