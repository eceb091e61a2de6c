"""What the server tells Streamlit of the explorer's look; the launcher reads it, which imports no
Streamlit."""

from __future__ import annotations

from latentcode.figures.colours import PALETTE

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
