"""`lumen dashboard`: what was recorded of servers, and what a running one does, as charts.

`findings`, `distribution`, `trace`, `runs`, `figures`, `compare` and `charts` compute, and
need nothing but NumPy; `pages` and `app` show it, and they alone need Streamlit. Nothing here is
part of serving.
"""
