// What the explorer adds to Streamlit's page: which changes of the address are steps for Back, the
// first stop of the keyboard, and a script that is loaded ahead.

// Which changes of the address are steps for Back? Streamlit makes a step of every one.
//
// The server marks the others with the name of the page (app/state/url.py, STAYS): they replace the
// address of the step. What Streamlit says of a page before the address has gone there, or after it
// has left, would replace that of another page: it waits, and comes with the address of the page.
{
    const mark = /([?&])stays=([^&]*)(?:&|$)/;
    const push = history.pushState.bind(history), replace = history.replaceState.bind(history);
    const change = (write, state, title, address) => {
        const text = String(address ?? location.href), page = mark.exec(text)?.[2];
        const to = text.replace(mark, '$1').replace(/[?&]$/, '');
        const { href, pathname } = new URL(to, location.href);
        if (page === undefined || pathname !== location.pathname) write(state, title, to);
        else if (href !== location.href && pathname.endsWith(`/${page}`)) replace(state, title, to);
    };
    history.pushState = (state, title, address) => {
        if (new URL(address ?? '', location.href).href !== location.href)
            change(push, state, title, address);
    };
    history.replaceState = (state, title, address) => change(replace, state, title, address);
}

// The menu is the last stop of the keyboard, after the whole page; this makes it the second.
document.addEventListener('focusin', ({ target }) => {
    const skip = document.getElementById('skip');
    if (skip) skip.style.top = target === skip ? '0' : '-9rem';
});
document.addEventListener('click', event => {
    if (event.target.id !== 'skip') return;
    event.preventDefault();
    document.querySelector('[data-testid=stTopNavLink]')?.focus();
});

// Charts of other pages need a script that a browser takes a second for: load it when this page has
// long been there and the browser has nothing to do.
{
    const later = document.currentScript.dataset.later, wait = 4000;
    const load = () => import(new URL(later, location.href)).catch(() => {});
    if (later) addEventListener('load', () => setTimeout(
        () => (window.requestIdleCallback ?? setTimeout)(load), wait));
}
