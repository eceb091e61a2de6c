"""Which files does the site have, and where? MkDocs calls this module while it builds.

A link means the same on GitHub and in the site: MkDocs resolves it between the places that files
have in the repository, and only their addresses differ (`address`). A page in the navigation
brings along everything that it links to, and so do these.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from notebook_pages import markdown_of_notebook
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parent.parent
HOME = {"docs/README.md": "index.html", "README.md": "overview.html"}
"""Pages whose address is not that of their file."""
NOT_PROSE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
DISTANT_IMAGE = re.compile(r"!\[([^\]]*)\]\(https?:[^)]*\)")
ITEM = re.compile(r"([-*]|\d+\.) ")


class WrittenPage(File):
    """A page whose file is no Markdown: a notebook, or the list of what is in a folder."""

    def is_documentation_page(self) -> bool:
        return True


def on_config(config: MkDocsConfig) -> None:
    """Give headings the names that they have on GitHub."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what the navigation leads to, and the pages of the API."""
    for source in reachable(sources(config.nav)):
        file = in_site(source, config)
        file.dest_uri = address(source)
        files.append(file)
    api = Path(config.extra["api"])
    for page in sorted(path for path in api.rglob("*") if path.is_file()):
        files.append(File.generated(config, f"api/{page.relative_to(api).as_posix()}",
                                    abs_src_path=str(page)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Prepare a page for Python-Markdown and for a reader without a network.

    Python-Markdown begins no list within a paragraph. A picture that lies elsewhere, such as a
    badge, is named in place of being loaded.
    """
    lines, fenced = [""], False
    for line in DISTANT_IMAGE.sub(r"\1", markdown).split("\n"):
        fenced ^= line.startswith("```")
        if ITEM.match(line) and not fenced and _is_text(lines[-1]):
            lines.append("")
        lines.append(line)
    return "\n".join(lines[1:])


def _is_text(line: str) -> bool:
    """Tell whether a line is of a paragraph rather than of a list."""
    return bool(line) and not line.startswith(" ") and not ITEM.match(line)


def sources(nav: object) -> list[str]:
    """Return the files of the repository that a navigation names."""
    if isinstance(nav, str):
        return [] if nav.startswith("api/") else [nav]
    below = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ()
    return [source for entry in below for source in sources(entry)]


def reachable(start: list[str]) -> list[str]:
    """Return the files of the repository that these link to, and so on, with themselves."""
    found, new = set(start), list(start)
    while new:
        linked = set(_linked(new.pop())) - found
        found |= linked
        new += linked
    return sorted(found)


def _linked(source: str) -> Iterator[str]:
    """Yield the files and folders that a page links to; MkDocs warns of those that are missing."""
    path = ROOT / source
    if path.is_dir():
        yield from (f"{source}/{child.name}" for child in path.iterdir())
    elif path.suffix in (".md", ".ipynb"):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            text = markdown_of_notebook(path)
        for target in LINK.findall(NOT_PROSE.sub("", text)):
            linked = os.path.normpath(Path(source).parent / target.split("#")[0])
            if "://" not in target and not target.startswith("#") and (ROOT / linked).exists():
                yield Path(linked).as_posix()


def in_site(source: str, config: MkDocsConfig) -> File:
    """Return what the site makes of a file or folder of the repository."""
    path = ROOT / source
    if path.is_dir():
        names = sorted(child.name for child in path.iterdir())
        listed = "\n".join(f"- [{name}]({path.name}/{name})" for name in names)
        return WrittenPage.generated(config, source, content=f"# {source}\n\n{listed}\n")
    if path.suffix == ".ipynb":
        return WrittenPage.generated(config, source, content=markdown_of_notebook(path))
    return File.generated(config, source, abs_src_path=str(path))


def address(source: str) -> str:
    """Return where a file or folder of the repository lies in the site."""
    if source in HOME:
        return HOME[source]
    path = Path(source.removeprefix("docs/"))
    if (ROOT / source).is_dir():
        path /= "index.html"
    elif path.suffix in (".md", ".ipynb"):
        path = path.with_suffix(".html")
        path = path.with_name("index.html") if path.stem == "README" else path
    return path.as_posix()
