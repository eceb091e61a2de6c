// Arcs from the token of a query to those of its keys, measured from the problem on the page.
const THINNEST = 1, THICKEST = 5, TOUCH = 10, FAINTEST = 0.04;
const drawings = new WeakMap(), pressed = new WeakMap();

const clamp = (value, least, most) => Math.min(Math.max(value, least), most);

// Where tokens lie, in pixels of the problem that scrolls with them.
const measured = problem => {
    const frame = problem.getBoundingClientRect(), places = new Map();
    for (const token of problem.querySelectorAll('[data-token]')) {
        const box = token.getBoundingClientRect();
        if (box.width) places.set(Number(token.dataset.token), {
            left: box.left - frame.left + problem.scrollLeft - problem.clientLeft,
            top: box.top - frame.top + problem.scrollTop - problem.clientTop,
            width: box.width, height: box.height});
    }
    return places;
};
const inALine = places => {
    const all = [...places.values()];
    return all.length > 1 && all.every(place => Math.abs(place.top - all[0].top) < 3);
};

const above = (from, to, i) => {
    const [a, b] = [from.left + from.width / 2, to.left + to.width / 2];
    const high = Math.min(112, 30 + 0.3 * Math.abs(a - b) + 7 * i), side = from === to ? 12 : 0;
    return `M${a},${from.top} C${a - side},${from.top - high} ${b + side},${to.top - high} ` +
        `${b},${to.top}`;
};
const across = (from, to, i) => {
    const [ax, ay] = [from.left + from.width / 2, from.top + from.height / 2];
    const [bx, by] = [to.left + to.width / 2, to.top + to.height / 2];
    if (from === to) {
        const high = 26 + 7 * i;
        return `M${ax},${from.top} C${ax - 16},${from.top - high} ${ax + 16},` +
            `${from.top - high} ${ax},${from.top}`;
    }
    // Heads lie side by side: each bends a little more, every other one to the other side.
    const bend = (0.12 + 0.07 * (i >> 1)) * (i % 2 ? -1 : 1);
    const cx = (ax + bx) / 2 - bend * (by - ay), cy = (ay + by) / 2 + bend * (bx - ax);
    const edge = place => [clamp(cx, place.left, place.left + place.width),
                           clamp(cy, place.top, place.top + place.height)];
    return `M${edge(from)} Q${cx},${cy} ${edge(to)}`;
};

// Over a long text each token has the colour of the head, of those shown, that scores it highest.
const shade = (problem, data, heads, tell) => {
    for (const token of problem.querySelectorAll('[data-token]')) {
        const key = Number(token.dataset.token);
        const size = head => Math.abs(data.scores[head][key] ?? 0);
        const best = heads.reduce((a, b) => a === null || size(b) > size(a) ? b : a, null);
        const share = best === null ? 0 : size(best) / data.largest;
        token.style.backgroundColor = share < FAINTEST ? 'transparent' :
            `color-mix(in srgb, ${data.colours[best]} ${Math.round(60 * share)}%, transparent)`;
        token.onpointerenter = () => tell(heads.map(head =>
            `head ${head}: ${data.scores[head][key].toPrecision(3)}`).join(', ') +
            `, ${data.names[data.query]} → ${data.names[key]}`);
        token.onpointerleave = () => tell('');
    }
};

const draw = (problem, data, heads, tell) => {
    problem.querySelector('svg.arcs')?.remove();
    problem.classList.toggle('in-a-line', inALine(measured(problem)));
    const places = measured(problem), from = places.get(data.query);
    const svg = problem.appendChild(element('svg', {
        class: 'arcs', role: 'img', width: problem.scrollWidth, height: problem.scrollHeight,
        'aria-label': `Scores of ${heads.length} heads${data.shaded ? '' : ' as arcs'}; the table ` +
            'below has all scores in numbers'}));
    if (!from) return;
    if (data.shaded) return shade(problem, data, heads, tell);
    const path = inALine(places) ? above : across;
    heads.forEach((head, i) => data.scores[head].forEach((score, key) => {
        const to = places.get(key), size = Math.abs(score);
        if (!to || !size || size < data.least) return;
        const width = THINNEST + (THICKEST - THINNEST) * size / data.largest;
        const d = path(from, to, i), text = `head ${head}, ${data.names[data.query]} → ` +
            `${data.names[key]}: ${score.toPrecision(3)}`;
        svg.append(element('g', {}, element('path', {
            class: 'arc', d, stroke: data.colours[head], 'stroke-width': width,
            'stroke-dasharray': score < 0 ? `${1.5 * width + 2} ${1.8 * width + 3}` : null,
            'data-head': head, 'data-key': key,
        }), element('path', {
            class: 'touch', d, 'stroke-width': Math.max(width, TOUCH),
            onpointerenter: () => tell(text), onpointerleave: () => tell(''),
        })));
    }));
};

export default function ({ data, parentElement }) {
    drawings.get(parentElement)?.();
    const n = data.scores.length, place = parentElement.closest(`.st-key-${data.place}`);
    // What a person has switched stays, until the model has another number of heads.
    let chosen = pressed.get(parentElement);
    if (chosen?.n !== n) chosen = {n, heads: null};
    const shown = () => chosen.heads ?? data.shown;
    const bar = rootIn(parentElement, 'arcs-heads'), told = rootIn(parentElement, 'arcs-told');
    bar.setAttribute('role', 'group');
    bar.setAttribute('aria-label', 'Heads that are shown');
    told.setAttribute('aria-live', 'polite');
    const problem = () => place?.querySelector('.arcs-problem');
    const redraw = () => {
        const found = problem();
        if (found) draw(found, data, shown(), text => { told.textContent = text; });
        for (const one of bar.querySelectorAll('[data-head]')) one.setAttribute(
            'aria-pressed', shown().includes(Number(one.dataset.head)));
    };
    const choose = heads => {
        chosen.heads = heads;
        pressed.set(parentElement, chosen);
        redraw();
    };
    const every = data.scores.map((_, head) => head);
    const several = {strongest: null, all: every, none: []};
    bar.replaceChildren('Heads', ...every.map(head => button({
        'data-head': head, title: `head ${head}`, 'aria-label': `head ${head}`,
        style: `--head: ${data.colours[head]}`, onclick: () => choose(
            shown().includes(head) ? shown().filter(other => other !== head)
                : [...shown(), head].sort((a, b) => a - b)),
    }, head)), ...Object.keys(several).map(
        name => button({onclick: () => choose(several[name])}, name)));
    redraw();
    // The problem may come later than this, be replaced, or move as the window changes.
    let waiting = 0;
    const soon = () => {
        cancelAnimationFrame(waiting);
        waiting = requestAnimationFrame(redraw);
    };
    const sizes = new ResizeObserver(soon);
    let watched = null;
    const watch = () => {
        const found = problem();
        if (!found || (found === watched && found.querySelector('svg.arcs'))) return;
        watched = found;
        sizes.disconnect();
        sizes.observe(found);
        for (const inner of found.children) if (inner.localName !== 'svg') sizes.observe(inner);
        soon();
    };
    const changes = new MutationObserver(watch);
    if (place) changes.observe(place, {childList: true, subtree: true});
    watch();
    const stop = () => {
        cancelAnimationFrame(waiting);
        sizes.disconnect();
        changes.disconnect();
    };
    drawings.set(parentElement, stop);
    return stop;
}
