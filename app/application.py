"""The explorer as the server runs it: Streamlit's pages, our own addresses, and a strict policy."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.pages_manager import PagesManager
from streamlit.starlette import App

from latentcode.app import index
from latentcode.app.charts.addresses import ROUTES
from latentcode.app.index import Policy
from latentcode.app.language.given import given
from latentcode.app.settings import HOSTS

if given() is not None:
    # Before there are threads: libraries such as scipy look for torch, and find it half loaded.
    for module in ("torch", "transformer_lens"):
        import_module(module)
    import_module("latentcode.app.language.work").work()

# Until a page has been opened, Streamlit takes the folder `pages` for one of scripts, and an
# address such as /decode for the script of that name, which shows nothing.
PagesManager.uses_pages_directory = False

# Streamlit reads the metadata of every installed package, which takes a second where there are 200,
# in search of components; ours are made by the pages that show them.
manifest_scanner.scan_component_manifests = lambda *_, **__: []

# `streamlit run` looks for this name.
app = App(
    Path(__file__).with_name("main.py"),
    routes=(*index.ROUTES, *ROUTES),
    middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=(*HOSTS, "[::1]"),
                           www_redirect=False),
                Middleware(Policy)])
