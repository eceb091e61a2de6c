"""The page of shared codes on the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.codes.folder import LABELS
from latentcode.codes.labels import described
from latentcode.figures.text import markdown_of
from latentcode.hub import TAGS, page

if TYPE_CHECKING:
    from latentcode.codes import LatentCodes


def data_card(codes: LatentCodes, repo: str, license: str | None) -> str:
    """Return the page of codes on the hub, which shows their labels as a table."""
    from huggingface_hub import DatasetCardData

    name = repo.partition("/")[2]
    facts = {key: codes.meta[key] for key in ("run", "kind", "split", "seed", "step")
             if key in codes.meta}
    body = "\n\n".join([
        f"# {name}",
        f"Latent codes, the attention scores over the heads, of {len(codes):,} instances: layers "
        f"{', '.join(map(str, codes.layers))}, {len(codes.pairs)} pairs of positions, "
        f"{codes.n_heads} heads. Made with latentcode.",
        "\n".join(f"- {key}: {value}" for key, value in facts.items()),
        "## Use", "```python\nimport latentcode as lc\n\n"
        f'codes = lc.LatentCodes.load("hf://datasets/{repo}")\n'
        f'codes.select(layer={codes.layers[-1]}, pair="{codes.pairs[0].name}")   '
        "# [instance, head]\n```",
        "## Labels", markdown_of(described(codes.labels))])
    return page(DatasetCardData(
        pretty_name=name, license=license, library_name="latentcode", tags=list(TAGS),
        configs=[{"config_name": "labels", "data_files": LABELS}]), body)
