"""The workshop: what `build.py`, `serve.py` and `python tests` share.

`bootstrap` makes .venv; `pins` reads what is pinned; `pip`, `npm` and `cache` obtain it and check it; `package`, `seed`
and `site` assemble dist/; `server` serves it. Nothing here reaches the page or is imported by `pyruntime`.
"""
