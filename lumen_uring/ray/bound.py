"""`python -m lumen_uring.ray.bound PID ...`: `lumen ...`, which ends when the process PID does.

Started by child.py, on a thread that lives as long as this process should.
"""

from __future__ import annotations

import os
import sys

from lumen_uring import cli
from lumen_uring.ring.process import end_with_parent


def main() -> int:
    """Runs the command; its exit status."""
    end_with_parent()
    if os.getppid() != int(sys.argv[1]):  # it ended before the call above
        return cli.EXIT_FAILURE
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    raise SystemExit(main())
