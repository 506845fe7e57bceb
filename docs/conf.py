"""The documentation site: `make docs` builds it into docs/_build/html, without a network.

Pages are the Markdown files of this folder. The reference of the public names and of the commands is generated from the
code. The gallery is made by running the examples in examples/gallery.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "site"))
os.environ.setdefault("MPLBACKEND", "Agg")

import pnpladmm  # noqa: E402  # after the path is set

project = "pnpladmm"
author = "the pnpladmm developers"
copyright = f"2026, {author}"
version = release = pnpladmm.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx.ext.githubpages",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "pages",
    "commands",
]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "README.md", "site", "gallery/*.ipynb", "gallery/*.zip"]
# Docstrings and examples write code in single backticks.
default_role = "code"

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

myst_heading_anchors = 4
suppress_warnings = ["config.cache"]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d+_",
    "ignore_pattern": r"__init__\.py",
    "download_all_examples": True,
    "remove_config_comments": True,
    "show_memory": False,
    "plot_gallery": True,
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
    "within_subsection_order": "FileNameSortKey",
    "min_reported_time": 1,
}

html_theme = "pydata_sphinx_theme"
html_title = "pnpladmm"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "header_links_before_dropdown": 4,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
html_show_sourcelink = False
html_context = {"default_mode": "auto"}
