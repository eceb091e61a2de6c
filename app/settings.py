"""Names of pages, hosts and colours; the launcher reads them, which imports no Streamlit."""

from __future__ import annotations

from latentcode.figures.colours import PALETTE

PAGES: tuple[tuple[str, str, str], ...] = (
    ("explore", "Explore", ":material/scatter_plot:"),
    ("model", "Model", ":material/query_stats:"),
    ("intervene", "Intervene", ":material/edit:"),
)

# Shown where the explorer was started with a language model, before the others.
LANGUAGE: tuple[tuple[str, str, str], ...] = (
    ("heads", "Heads", ":material/hub:"),
    ("prompt", "Prompt", ":material/edit_note:"),
    ("texts", "Texts", ":material/notes:"),
)
OTHERS = "Models of problems"
"""What the menu calls the pages of the zoo and of runs, beside those of a language model."""

ACCENT = PALETTE[0]
FONT = "Inter, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', sans-serif"

STREAMLIT_THEME: dict[str, str] = {
    "theme.font": FONT,
    "theme.baseFontSize": "15",
    "theme.baseRadius": "8px",
    "theme.showWidgetBorder": "true",
    "theme.light.primaryColor": ACCENT,
    "theme.light.backgroundColor": "#FFFFFF",
    "theme.light.secondaryBackgroundColor": "#F4F6F8",
    "theme.light.textColor": "#1B2530",
    "theme.light.borderColor": "#DDE3E8",
    "theme.dark.primaryColor": "#56B4E9",
    "theme.dark.backgroundColor": "#12171D",
    "theme.dark.secondaryBackgroundColor": "#1B222B",
    "theme.dark.textColor": "#E4E9EE",
    "theme.dark.borderColor": "#323C47",
}
"""Options of Streamlit; the browser, or Streamlit's menu, decides which theme is shown."""
HOSTS = ("localhost", "127.0.0.1", "::1")
"""What requests may call the server: a page from elsewhere may have a name that leads here, too."""
