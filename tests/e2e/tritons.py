"""What the tests on NVIDIA's clients share: `kind` is one of their modules, of HTTP or of gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tritonclient import utils


def inputs_of(kind: Any, arrays: Mapping[str, np.ndarray], **how: Any) -> list[Any]:
    """A request's inputs. `how`: what else set_data_from_numpy is told."""
    inputs = []
    for name, array in arrays.items():
        one = kind.InferInput(name, array.shape, utils.np_to_triton_dtype(array.dtype))
        one.set_data_from_numpy(array, **how)
        inputs.append(one)
    return inputs


def refused(client: Any, what: str, *given: Any, **named: Any) -> utils.InferenceServerException:
    """Calls a method that has to fail; returns what the client raised."""
    with pytest.raises(utils.InferenceServerException) as caught:
        getattr(client, what)(*given, **named)
    return caught.value


def ask_many(
    kind: Any,
    port: int,
    x: np.ndarray,
    ways: Sequence[Mapping[str, Any]],
    id_of: Callable[..., str],
) -> None:
    """Inferences of `double` at once, one for each of `ways` to send its input, by a client on
    asyncio: each gets its own answer."""

    async def ask(client: Any, number: int, how: Mapping[str, Any]) -> None:
        mine = x + np.float32(number)
        inputs = inputs_of(kind, {"x": mine}, **how)
        result = await client.infer("double", inputs, request_id=f"n{number}")
        assert id_of(result.get_response()) == f"n{number}"
        np.testing.assert_array_equal(result.as_numpy("y"), mine + mine)

    async def everybody() -> None:
        async with kind.InferenceServerClient(f"127.0.0.1:{port}") as client:
            await asyncio.gather(*(ask(client, n, how) for n, how in enumerate(ways)))

    asyncio.run(everybody())
