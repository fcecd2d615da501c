"""A peer: the model behind Triton's Python backend, running ONNX Runtime.

Copied into Triton's model repository as model.py by peers/servers.py and run by Triton, an instance
per core with one thread per session, or one instance with ONNX Runtime's defaults. Triton's own
ONNX backend, written in C++, is not in the wheel: figures of this one are of the Python backend and
never to be quoted as Triton's best.
"""

from __future__ import annotations

import json
import os

import onnxruntime
import triton_python_backend_utils as backend


class TritonPythonModel:
    """The class that Triton looks for."""

    def initialize(self, arguments: dict[str, str]) -> None:
        """Called once per instance."""
        parameters = json.loads(arguments["model_config"])["parameters"]
        options = onnxruntime.SessionOptions()
        if "LUMEN_PEER_TUNED" in os.environ:
            options.intra_op_num_threads = 1
            options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            parameters["path"]["string_value"], options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name
        self._output = self._session.get_outputs()[0].name

    def execute(self, requests: list[object]) -> list[object]:
        """Called with what waits; answers in the same order."""
        responses = []
        for request in requests:
            tensor = backend.get_input_tensor_by_name(request, self._input).as_numpy()
            (answer,) = self._session.run([self._output], {self._input: tensor})
            tensors = [backend.Tensor(self._output, answer)]
            responses.append(backend.InferenceResponse(output_tensors=tensors))
        return responses
