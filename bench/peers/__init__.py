"""Lumen beside other servers, and under other people's clients.

Programs: compare.py (FastAPI, Triton), http_live.py (nginx), perf_analyzer.py (NVIDIA's client).
The other files install, start and load what those need. fastapi_app.py and triton_model.py run
inside the peers' own environments and import nothing from here.
"""
