"""The description for package indexes: README.md without what leads into the repository.

An index shows it at another address, where relative links and pictures are dead. Everything else
about the package stands in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n\*[^*]*\*\n\n")
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)([^)]*)\)")

text = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
setup(long_description=LINK.sub(r"\1 (`\2`)", PICTURE.sub("", text)),
      long_description_content_type="text/markdown")
