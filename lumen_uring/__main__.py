"""Makes `python -m lumen_uring` the same as the installed command `lumen`.

Run by the interpreter, on the main thread. It must hold no logic of its own.
"""

import sys

from lumen_uring.cli import main

if __name__ == "__main__":
    sys.exit(main())
