"""An engine host that talks: it writes as many lines to stderr as a fragment says, whose one column is the folder it runs in."""

from __future__ import annotations

import os
import sys

from sbon_node.engine.spark.wire import Feed


def main() -> None:
    feed = Feed("host")
    feed.send({"ready": os.getpid()})
    while (command := feed.receive())["do"] != "close":
        for number in range(int(command["fragment"])):
            print(f"line {number} {'x' * 90}", file=sys.stderr, flush=True)
        feed.send({"schema": [(os.getcwd(), "string")]})
    feed.send({"done": True})


if __name__ == "__main__":
    main()
