"""What servers and commands share that forked.py forks: modules and libraries, but no thread."""

from __future__ import annotations

import ctypes
import os

# numpy has threads unless it is told not to.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# ruff: noqa: F401
import numpy
import onnx

from lumen_uring import cli, config
from lumen_uring.engine import export
from lumen_uring.loading import inspection, prepare
from lumen_uring.ring import library, onnxruntime_path
from lumen_uring.serving import server

# They are loaded, and nothing of them is called: each server sets them up by itself.
LIBRARIES = [ctypes.CDLL(str(path)) for path in (onnxruntime_path.find(), library.find())]
assert len(os.listdir("/proc/self/task")) == 1
