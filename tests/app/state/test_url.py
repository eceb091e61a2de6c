"""Is what a person chooses in the URL, and what the URL says on the page?"""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def page() -> None:
    import streamlit as st

    from latentcode.app.state.url import choose, choose_several, remember, remembered

    options = st.session_state.get("options", ["first", "second", "third"])
    form = st.session_state.get("form", "list")
    chosen = choose("One", options, key="one", default="second" if "second" in options else None,
                    form=form)
    number = choose("Number", [2_000, 5_000], key="number", shown=lambda n: f"{n:,}")
    several = choose_several("Several", options, key="several", default=options[:1])
    if st.button("Remember"):
        remember("lasso", "L1_2_3")
    if st.button("Forget"):
        remember("lasso", None)
    st.text(f"{chosen} {number} {'+'.join(several)} {remembered('lasso')}")


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


def test_what_no_widget_holds_is_remembered() -> None:
    test = shown()
    test.button[0].click().run()
    assert text(test).endswith("L1_2_3")
    assert test.query_params["lasso"] in ("L1_2_3", ["L1_2_3"])
    # The URL loses it when the page is changed; the session does not.
    del test.query_params["lasso"]
    test.run()
    assert text(test).endswith("L1_2_3")
    assert test.query_params["lasso"] in ("L1_2_3", ["L1_2_3"])
    test.button[1].click().run()
    assert text(test).endswith("None")
    assert "lasso" not in test.query_params


def test_a_number_is_one_that_there_is() -> None:
    def number() -> None:
        import streamlit as st

        from latentcode.app.state.url import remembered_number

        st.text(str(remembered_number("row", None, 89)))

    for asked, shown in (("89", "89"), ("90", "None"), ("x", "None"), ("1" * 5_000, "None")):
        test = AppTest.from_function(number)
        test.query_params["row"] = asked
        test.run()
        assert test.text[0].value == shown
        assert len(test.warning) == (shown == "None")
