"""`python -m dr_q`, and the command `dr-q`."""

import sys


def main() -> int:
    """What the command line says; its libraries take a second or two to load, in which one may press Ctrl-C."""
    try:
        from dr_q.cli import main as run
    except KeyboardInterrupt:
        print("dr-q: interrupted", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
