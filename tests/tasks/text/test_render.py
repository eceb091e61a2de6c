"""Is a text shown as it is, whatever is in it, with the pair marked?"""

from __future__ import annotations

from html.parser import HTMLParser

from small_text import small_text

from latentcode.devices import make_generator
from latentcode.tasks.text.render import Drawing, draw_html, draw_small

HOSTILE = ["<b>", "A", '"\'', "&amp;", "\n", "\t", "<script>", "\u202e", "A", "]]>", "\u200b",
           "\u05d0", "\x00", "\ud800", "w" * 400]
DRAWING = Drawing([*HOSTILE, "x"], query=8, key=2, earlier=1, title="<i>title</i>")


class Shown(HTMLParser):
    """What a reader would copy out of HTML, and the tags that it has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags, self.tokens, self._hidden = "", [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self._hidden.append("user-select:none" in (found.get("style") or ""))
        if "data-token" in found:
            self.tokens.append(int(found["data-token"] or -1))

    def handle_endtag(self, tag: str) -> None:
        self._hidden.pop()

    def handle_data(self, data: str) -> None:
        self.text += "" if any(self._hidden) else data


def test_hostile_text_is_text_and_can_be_copied() -> None:
    page = draw_html(DRAWING)
    shown = Shown(page)
    assert set(shown.tags) == {"div", "span"}
    assert "".join(HOSTILE[:12]) + HOSTILE[14] + "x" in shown.text
    assert "<i>title</i>" in shown.text
    assert shown.tokens == list(range(15))
    assert all(f"U+{number}" in page for number in ("202E", "200B", "0000", "D800"))
    page.encode()  # no half of a surrogate


def test_a_small_drawing_shows_what_is_near() -> None:
    pieces = [f" w{i}" for i in range(200)]
    shown = Shown(draw_small(Drawing(pieces, query=150, key=21, earlier=20, title="")))
    assert shown.tokens == [*range(16, 26), *range(141, 161)]
    joined = Shown(draw_small(Drawing(pieces, query=30, key=21, earlier=20, title="")))
    assert joined.tokens == list(range(16, 41))


def test_instances_of_a_task_are_drawn() -> None:
    task = small_text()
    batch = task.sample("ood", 3, make_generator(0, "draw"))
    labels = task.labels(batch).iloc[1]
    page = task.render(batch, 1, "html")
    assert Shown(page).tokens == list(range(24))
    assert task.data.tokenizer.decode(batch.inputs[1].tolist()) in Shown(page).text
    assert f"token {labels.query_position}, {labels.query_token!r}" in task.render(batch, 1)
    assert 'data-token="' in task.sketch(batch, 1)
