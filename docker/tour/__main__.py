"""``scripts/lab``: a guided tour of the lab in containers. Needs docker and Python, and nothing else."""

from __future__ import annotations

import argparse
import os
import sys

import engine
import tour
from engine import NODES, EngineError

HELP = """\
up                 build, start, wait until all answer
send N             send N messages (--first NODE, --to ADDRESS)
hold, release      let the servers behind the relay refuse mail, so that it stays in transit; take it again
kill NODE          SIGKILL; the disk stays
lose-disk NODE     SIGKILL, the volume removed, started again with an empty one
drain NODE         empty it, then stop it
partition NODE     disconnect it from the network; it goes on running
heal               connect and start whatever is cut off or down
status             who is up, and what each node has
count              wait for what was acknowledged, and count it at the mailboxes
audit              prove it from the tracking logs
down               remove the lab's containers, network and volumes
"""


def _number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/lab", formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
        epilog=HELP,
    )  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in ("up", "hold", "release", "heal", "status", "audit", "down"):
        commands.add_parser(name)
    for name in ("kill", "lose-disk", "drain", "partition"):
        commands.add_parser(name).add_argument("node", choices=NODES)
    send = commands.add_parser("send")
    send.add_argument("number", type=_number)
    send.add_argument("--first", choices=NODES, default=NODES[0])
    send.add_argument("--to", default="alice@inside.test")
    commands.add_parser("count").add_argument("--patience", type=float, default=90.0)
    given = vars(parser.parse_args())
    try:
        engine.check()
        getattr(tour, given.pop("command").replace("-", "_"))(**given)
    except EngineError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\nlab: interrupted; the same again goes on, scripts/lab down takes it all away", file=sys.stderr
        )
        return 130
    except BrokenPipeError:  # whoever read along has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


if __name__ == "__main__":
    sys.exit(main())
