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
// Milliseconds after which what is pointed at is brought into sight: what stands above it may come
// later. Whoever moves himself is left in peace.
const LATER = [0, 700, 2000], MOVES = ['wheel', 'pointerdown', 'keydown'];

// A browser may keep nothing, and say so by an error.
const known = () => { try { return !!localStorage.getItem(KNOWN); } catch { return true; } };
const learn = () => { try { localStorage.setItem(KNOWN, 'yes'); } catch { /* offered again */ } };

const link = (kind, text, href, more = {}) =>
    element('a', { class: `tour-${kind}`, href, target: '_self', ...more }, text);
const closing = (onclick, told) =>
    button({ class: 'tour-close', onclick, 'aria-label': told, title: told }, '✕');

const card = (step, close) => element('section', {
    class: 'tour-card', 'aria-label': 'Tour',
    onkeydown: event => { if (event.key === 'Escape') close(); },
}, element('div', { class: 'tour-head' },
    element('strong', { class: 'tour-title' }, step.title), closing(close, 'Close the tour')),
element('p', { class: 'tour-text' }, step.text),
element('p', { class: 'tour-do' }, element('b', {}, 'Try: '), step.do),
element('nav', { class: 'tour-foot', 'aria-label': 'Steps of the tour' },
    link('here', `${step.number} of ${step.of}`, step.here, { title: 'Show this step as it was' }),
    step.back ? link('back', 'Back', step.back) : '',
    step.next ? link('next', 'Next', step.next)
        : button({ class: 'tour-next', onclick: close }, 'Close')));

const offer = (first, dismiss) => element('div', { class: 'tour-offer' }, 'New here? ',
    link('take', 'Take the one-minute tour', first, { onclick: learn }),
    closing(dismiss, 'Do not offer the tour again'));

// What the step points at has a frame, and comes into sight as soon as it is there; the card goes to
// the other side of the window, so that it does not cover it.
const point = (at, colour, card) => {
    let soon = [];
    const frame = element('style', {}, `${at} {outline: 2px solid ${colour};
        outline-offset: 5px; border-radius: 6px; scroll-margin: 5rem 0 16rem;}`);
    const find = () => {
        const found = document.querySelector(at);
        if (!found) return;
        watch.disconnect();
        soon = LATER.map(wait => setTimeout(() => {
            document.querySelector(at)?.scrollIntoView({ block: 'nearest' });
            aside();
        }, wait));
    };
    const stay = () => soon.forEach(clearTimeout);
    const aside = () => {
        const box = document.querySelector(at)?.getBoundingClientRect();
        if (box) card.classList.toggle('tour-left', box.left + box.width / 2 > innerWidth / 2);
    };
    const watch = new MutationObserver(find);
    watch.observe(document.body, { childList: true, subtree: true });
    document.head.append(frame);
    find();
    addEventListener('resize', aside);
    for (const doing of MOVES) addEventListener(doing, stay, true);
    return () => {
        watch.disconnect();
        stay();
        removeEventListener('resize', aside);
        for (const doing of MOVES) removeEventListener(doing, stay, true);
        frame.remove();
    };
};

const tours = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
    let tour = tours.get(parentElement);
    if (!tour) {
        tour = { root: rootIn(parentElement, 'tour'), shown: null, leave() {} };
        tours.set(parentElement, tour);
    }
    const shown = JSON.stringify(data);
    if (shown !== tour.shown) {
        tour.shown = shown;
        tour.leave();
        tour.leave = () => {};
        const { root } = tour, start = link('start', 'Tour', data.first, {
            title: 'A tour of the explorer, in one minute', onclick: learn });
        if (data.step) {
            learn();
            const made = card(data.step, () => {
                tour.leave();
                root.replaceChildren(start);
                setTriggerValue('closed', Date.now());
            });
            root.replaceChildren(made);
            tour.leave = point(data.step.at,
                getComputedStyle(root).getPropertyValue('--st-primary-color'), made);
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
