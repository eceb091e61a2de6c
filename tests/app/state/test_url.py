"""Is what a person chooses in the URL, and what the URL says on the page?"""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from latentcode.app.state.url import STAYS


def page() -> None:
    import streamlit as st

    from latentcode.app.state.messages import guarded
    from latentcode.app.state.url import (
        choose,
        choose_several,
        open_address,
        remember,
        remembered,
    )

    @guarded
    def body() -> None:
        options = st.session_state.get("options", ["first", "second", "third"])
        form = st.session_state.get("form", "list")
        chosen = choose("One", options, key="one", form=form,
                        default=lambda: "second" if "second" in options else options[0])
        number = choose("Number", [2_000, 5_000], key="number", shown=lambda n: f"{n:,}",
                        default=st.session_state.get("best"))
        several = choose_several("Several", options, key="several", default=options[:1])
        if st.button("Remember"):
            remember("lasso", "L1_2_3")
        if st.button("Forget"):
            remember("lasso", None)
        st.text(f"{chosen} {number} {'+'.join(several)} {remembered('lasso')}")

    open_address(st.session_state.get("page", "one page"))
    body()


def shown(**query: str) -> AppTest:
    test = AppTest.from_function(page, default_timeout=30)
    for name, value in query.items():
        test.query_params[name] = value
    return test.run()


def text(test: AppTest) -> str:
    assert not test.exception
    return str(test.text[0].value)


def test_the_url_chooses() -> None:
    test = shown()
    assert text(test) == "second 2000 first None"
    assert not test.warning
    assert text(shown(one="third", number="5,000", lasso="L4_5_6")) == "third 5000 first L4_5_6"


def test_what_the_url_asks_for_in_vain_is_said() -> None:
    for form in ("list", "buttons"):
        test = AppTest.from_function(page, default_timeout=30)
        test.session_state["form"] = form
        test.query_params["one"] = "fourth"
        test.run()
        assert text(test).startswith("second")
        assert all(word in test.warning[0].value for word in ("'fourth'", "'second'", "third"))


def test_an_option_that_is_gone_gives_way_to_the_default() -> None:
    test = shown(one="third", several="third")
    test.session_state["options"] = ["first", "fourth"]
    test.run()
    assert text(test).startswith("first 2000 ")
    assert "third" not in text(test)
    # The browser would go on showing what it is not told to change.
    assert test.selectbox(key="one").proto.set_value
    assert test.selectbox(key="one").value == "first"


def test_what_was_the_default_can_be_chosen_where_another_one_is() -> None:
    test = shown()
    test.selectbox(key="number").select("5,000").run()
    test.session_state["best"] = 5_000
    assert text(test.run()).startswith("second 5000")
    test.selectbox(key="number").select("2,000").run()
    assert text(test).startswith("second 2000")
    assert text(test.run()).startswith("second 2000")


def address(test: AppTest) -> dict[str, list[str]]:
    return {name: [value] if isinstance(value, str) else list(value)
            for name, value in test.query_params.items() if name != STAYS}


def test_every_choice_is_in_the_address_defaults_too() -> None:
    test = shown()
    assert address(test) == {"one": ["second"], "number": ["2,000"], "several": ["first"]}
    test.selectbox(key="one").select("third").run()
    test.multiselect(key="several").set_value([]).run()
    assert address(test) == {"one": ["third"], "number": ["2,000"], "several": [""]}
    # It gives the same picture where nothing else is known.
    other = AppTest.from_function(page, default_timeout=30)
    for name, value in address(test).items():
        other.query_params[name] = value
    assert text(other.run()) == text(test) == "third 2000  None"


def test_what_is_chosen_is_a_step_and_what_is_drawn_is_none() -> None:
    test = shown()
    assert STAYS in test.query_params  # of what was opened
    test.selectbox(key="one").select("third").run()
    assert STAYS not in test.query_params
    test.button[0].click().run()
    assert address(test)["lasso"] == ["L1_2_3"]
    assert STAYS in test.query_params
    test.session_state["page"] = "another page"
    test.run()
    test.selectbox(key="one").select("first").run()
    assert STAYS not in test.query_params


def test_back_shows_what_the_address_says(monkeypatch: pytest.MonkeyPatch) -> None:
    test = shown()
    before = address(test)
    test.selectbox(key="one").select("third").run()
    test.button[0].click().run()
    assert text(test) == "third 2000 first L1_2_3"
    for name in address(test):
        del test.query_params[name]
    for name, value in before.items():
        test.query_params[name] = value
    # AppTest cannot go back: it is told to the run that it does.
    monkeypatch.setattr("latentcode.app.state.url.went_back", lambda: True)
    assert text(test.run()) == "second 2000 first None"
    assert address(test) == before
    assert test.selectbox(key="one").proto.set_value


def test_who_has_chosen_nothing_follows_the_default() -> None:
    test = shown()
    test.session_state["best"] = 5_000
    assert text(test.run()) == "second 5000 first None"
    assert address(test)["number"] == ["5,000"]
    test.selectbox(key="number").select("2,000").run()
    test.session_state["best"] = 5_000
    assert text(test.run()) == "second 2000 first None"


def test_what_no_widget_holds_is_remembered() -> None:
    test = shown()
    test.button[0].click().run()
    assert text(test).endswith("L1_2_3")
    assert address(test)["lasso"] == ["L1_2_3"]
    # The URL loses it when the page is changed; the session does not.
    del test.query_params["lasso"]
    test.run()
    assert text(test).endswith("L1_2_3")
    assert address(test)["lasso"] == ["L1_2_3"]
    test.button[1].click().run()
    assert text(test).endswith("None")
    assert "lasso" not in test.query_params


def test_a_number_is_one_that_there_is() -> None:
    def number() -> None:
        import streamlit as st

        from latentcode.app.state.url import remembered_number

        st.text(str(remembered_number("row", None, 89)))

    for asked, shown in (("89", "89"), ("90", "None"), ("x", "None"), ("1" * 5_000, "None")):
        test = AppTest.from_function(number, default_timeout=30)
        test.query_params["row"] = asked
        test.run()
        assert test.text[0].value == shown
        assert len(test.warning) == (shown == "None")


def clicked_early() -> None:
    import streamlit as st

    from latentcode.app.state.messages import guarded
    from latentcode.app.state.url import choose, open_address, remember

    def click() -> None:
        st.session_state["one"] = "second"

    @guarded
    def body() -> None:
        chosen = choose("One", ["first", "second"], key="one")
        if not st.button("Second", on_click=click):
            st.stop()  # the click comes before the page is there as a whole
        st.text(chosen)

    if "page shown last" not in st.session_state:
        remember("one", "first")
    open_address("one page")
    body()


def test_what_is_clicked_before_the_first_run_of_a_page_has_ended_counts() -> None:
    test = AppTest.from_function(clicked_early, default_timeout=30).run()
    assert text(test.button[0].click().run()) == "second"


def test_a_widget_whose_value_is_forgotten_begins_with_its_default() -> None:
    def anew() -> None:
        import streamlit as st

        from latentcode.app.state.messages import answering
        from latentcode.app.state.url import choose, open_address, remember, write_address

        open_address("one page")
        st.button("Anew", on_click=answering(remember), args=("one", None))
        st.text(choose("One", ["first", "second"], key="one"))
        write_address()

    test = AppTest.from_function(anew, default_timeout=30).run()
    test.selectbox(key="one").select("second").run()
    assert text(test) == "second"
    assert text(test.button[0].click().run()) == "first"
    assert address(test) == {"one": ["first"]}
    assert test.selectbox(key="one").value == "first"
