// A step of the tour as a card; without a step, a link that starts it, which newcomers are offered
// in one line until they have clicked it, in this browser.
//
// data.step     {number, of, title, text, do, at, here, back, next}: what the card says, the
//               selector of what it points at, and addresses; or null
// data.first    address of the first step
// data.offered  whether a person may be new here
//
// Triggers `closed`.
const KNOWN = 'latentcode knows the tour';

// A browser may keep nothing, and say so by an error.
const known = () => { try { return !!localStorage.getItem(KNOWN); } catch { return true; } };
const learn = () => { try { localStorage.setItem(KNOWN, 'yes'); } catch { /* offered again */ } };

const made = (name, kind, text = '', more = {}) => {
    const part = document.createElement(name);
    part.className = kind;
    part.textContent = text;
    for (const key in more) part.setAttribute(key, more[key]);
    return part;
};
const link = (kind, text, href, more = {}) => made('a', kind, text, { href, target: '_self', ...more });
const button = (kind, text, act, more = {}) => {
    const part = made('button', kind, text, { type: 'button', ...more });
    part.onclick = act;
    return part;
};

const card = (step, close) => {
    const root = made('section', 'tour-card', '', { 'aria-label': 'Tour' });
    const head = made('div', 'tour-head');
    head.append(made('strong', 'tour-title', step.title),
        button('tour-close', '✕', close, { 'aria-label': 'Close the tour', title: 'Close the tour' }));
    const about = made('p', 'tour-do', step.do);
    about.prepend(made('b', '', 'Try: '));
    const foot = made('nav', 'tour-foot', '', { 'aria-label': 'Steps of the tour' });
    foot.append(
        link('tour-here', `${step.number} of ${step.of}`, step.here,
            { title: 'Show this step as it was' }),
        step.back ? link('tour-back', 'Back', step.back) : '',
        step.next ? link('tour-next', 'Next', step.next)
            : button('tour-next', 'Close', close));
    root.append(head, made('p', 'tour-text', step.text), about, foot);
    root.onkeydown = event => { if (event.key === 'Escape') close(); };
    return root;
};

const offer = (first, dismiss) => {
    const root = made('div', 'tour-offer', 'New here? ');
    const start = link('tour-take', 'Take the one-minute tour', first);
    start.onclick = learn;
    root.append(start, button('tour-close', '✕', dismiss, {
        'aria-label': 'Do not offer the tour again', title: 'Do not offer the tour again' }));
    return root;
};

// What the step points at has a frame, and comes into sight as soon as it is there.
const point = (at, colour) => {
    const frame = made('style', '', `${at} {outline: 2px solid ${colour};
        outline-offset: 5px; border-radius: 6px; scroll-margin: 5rem 0 16rem;}`);
    const find = () => {
        const found = document.querySelector(at);
        if (found) { watch.disconnect(); found.scrollIntoView({ block: 'nearest' }); }
    };
    const watch = new MutationObserver(find);
    watch.observe(document.body, { childList: true, subtree: true });
    document.head.append(frame);
    find();
    return () => { watch.disconnect(); frame.remove(); };
};

const tours = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
    let tour = tours.get(parentElement);
    if (!tour) {
        tour = { root: parentElement.appendChild(made('div', 'tour')), shown: null, leave() {} };
        tours.set(parentElement, tour);
    }
    const shown = JSON.stringify(data);
    if (shown !== tour.shown) {
        tour.shown = shown;
        tour.leave();
        tour.leave = () => {};
        const { root } = tour, start = link('tour-start', 'Tour', data.first, {
            title: 'A tour of the explorer, in one minute' });
        start.addEventListener('click', learn);
        if (data.step) {
            learn();
            root.replaceChildren(card(data.step, () => {
                tour.leave();
                root.replaceChildren(start);
                setTriggerValue('closed', Date.now());
            }));
            tour.leave = point(data.step.at,
                getComputedStyle(root).getPropertyValue('--st-primary-color'));
            root.querySelector('.tour-next').focus({ preventScroll: true });
        } else {
            root.replaceChildren(start);
            if (data.offered && !known()) root.append(offer(data.first, () => {
                learn();
                root.replaceChildren(start);
            }));
        }
    }
    return () => { tour.leave(); tour.root.remove(); tours.delete(parentElement); };
}
