"""`make text-clients`: LangChain's and LlamaIndex's embeddings, unmodified, with Lumen.

Both come to an environment of their own (370 MB), since their packages bring ninety others;
OpenAI's, Cohere's and Hugging Face's clients are in `make test`. The server has MiniLM. Prints one
line per client; all must give the same vectors. Needs the network, once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = (
    "langchain-openai==1.7.4",
    "llama-index-embeddings-openai==0.7.0",
    "llama-index-embeddings-text-embeddings-inference==0.6.0",
)
TEXTS: Final = ["how do I reset my password", "a forgotten password", "the cat sat on the mat"]
EQUAL: Final = 1e-6


def vectors(url: str) -> Iterator[tuple[str, list[list[float]], list[float]]]:
    """In that environment: by client, the vectors of TEXTS, and of the first as a query."""
    from langchain_openai import OpenAIEmbeddings
    from llama_index.embeddings.openai import OpenAIEmbedding
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

    # Else it sends tokens of OpenAI's models, for which it fetches a vocabulary.
    chain: Any = OpenAIEmbeddings(
        base_url=f"{url}/v1", api_key="none", model="m", check_embedding_ctx_length=False
    )
    yield "langchain-openai", chain.embed_documents(TEXTS), chain.embed_query(TEXTS[0])
    for name, index in (
        (
            "llama-index, OpenAI",
            OpenAIEmbedding(api_base=f"{url}/v1", api_key="none", model_name="m"),
        ),
        ("llama-index, TEI", TextEmbeddingsInference(model_name="m", base_url=url)),
    ):
        yield name, index.get_text_embedding_batch(TEXTS), index.get_query_embedding(TEXTS[0])


def inside(url: str) -> int:
    """Asks by each client; returns the exit status."""
    first: list[float] | None = None
    wrong = 0
    for name, found, query in vectors(url):
        first = first or found[0]
        pairs = [*zip(found[0], first, strict=True), *zip(query, first, strict=True)]
        apart = max(abs(one - other) for one, other in pairs)
        is_right = apart < EQUAL and len(found) == len(TEXTS) and found[1] != found[0]
        wrong += not is_right
        print(f"{name}: {len(found)} vectors of {len(query)}, {apart:.1e} apart"
              f"{'' if is_right else ': WRONG'}")  # fmt: skip
    return int(wrong > 0)


def main() -> int:
    """The command. Returns its exit status."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from bench.common import wheels
    from bench.common.local_server import local_server
    from bench.peers.install import environment

    python = environment("text-clients", PACKAGES)
    with local_server(f"--model=m={wheels.minilm()}", "--set=server.metrics_port=0") as server:
        command = [str(python), __file__, f"http://127.0.0.1:{server.port}"]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(inside(sys.argv[1]) if len(sys.argv) > 1 else main())
