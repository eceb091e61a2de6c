// What the explorer adds to Streamlit's page: which changes of the address are steps for Back, the
// first stop of the keyboard, and a script that is loaded ahead.

// Which changes of the address are steps for Back? Streamlit makes a step of every one.
//
// The server marks the others (app/state/url.py, STAYS): they replace the address of the step.
{
    const mark = /([?&])stays=(?:&|$)/;
    const push = history.pushState.bind(history), replace = history.replaceState.bind(history);
    const plain = address => String(address ?? location.href).replace(mark, '$1').replace(/[?&]$/, '');
    history.pushState = (state, title, address) => {
        const to = plain(address);
        if (new URL(to, location.href).href === location.href) return;
        (mark.test(String(address)) ? replace : push)(state, title, to);
    };
    history.replaceState = (state, title, address) => replace(state, title, plain(address));
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
