"""An engine process that writes as many lines to stderr as a fragment says. The fragment's one column is its working folder."""

from __future__ import annotations

import os
import sys

from sbon_node.engine.spark.messages import COMMAND, Analyse, Analysed, Close, Done, Ready
from sbon_node.engine.spark.wire import Feed
from sbon_protocol.api.columns import Column


def main() -> None:
    feed = Feed("engine")
    feed.send(Ready(pid=os.getpid()))
    while not isinstance(command := feed.receive(COMMAND), Close):
        assert isinstance(command, Analyse)
        for number in range(int(command.fragment)):
            print(f"line {number} {'x' * 90}", file=sys.stderr, flush=True)
        feed.send(Analysed(schema=(Column(os.getcwd(), "string"),)))
    feed.send(Done())


if __name__ == "__main__":
    main()
