"""The sub-commands of `lumen`, one module each, and nothing else.

Imported by cli.py, on the main thread. Each module has `add(subparsers)` that declares its options
and `run(arguments) -> int` that does the work; heavy imports happen in `run`, so that --help
needs neither numpy nor the C library.
"""
