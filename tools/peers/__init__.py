"""What Lumen is compared with: installing, starting, loading other servers.

Used by tools/compare.py alone. fastapi_app.py and triton_model.py run inside the peers' own
environments and never import anything from here.
"""
