"""`python -m dr_q` is the command `dr-q`."""

import sys

from dr_q.cli import main

if __name__ == "__main__":
    sys.exit(main())
