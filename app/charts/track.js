// One number per layer, as a line from 0 to 1; a click on a layer chooses it.
//
// data.measured   what the numbers are, in words
const NS = 'http://www.w3.org/2000/svg';
const MOST_NUMBERS = 12;

const high = share => `${94 - 88 * Math.min(Math.max(share, 0), 1)}%`;

const draw = (svg, kind, values, text = '') => {
    const element = document.createElementNS(NS, kind);
    for (const name in values) element.setAttribute(name, values[name]);
    element.textContent = text;
    svg.append(element);
};

export default function ({ data, parentElement, setTriggerValue }) {
    let track = parentElement.querySelector('.track');
    if (!track) {
        track = document.createElement('div');
        track.className = 'track';
        parentElement.append(track);
    }
    const focused = track.contains(document.activeElement)
        ? document.activeElement.dataset.layer : null;
    const svg = document.createElementNS(NS, 'svg');
    svg.setAttribute('aria-hidden', 'true');
    const { places, current } = data;
    const across = i => `${100 * (i + 0.5) / places.length}%`;
    for (const end of [0, 1]) {
        draw(svg, 'line', { class: 'track-end', x1: 0, x2: '100%', y1: high(end), y2: high(end) });
        draw(svg, 'text', { class: 'track-number', x: -6, y: high(end), 'text-anchor': 'end',
            'dominant-baseline': 'central' }, end);
    }
    for (const name of ['shuffled', 'value'])
        places.slice(1).forEach((place, i) => {
            const before = places[i];
            if (place[name] !== null && before[name] !== null) draw(svg, 'line', {
                class: `track-${name}`, x1: across(i), x2: across(i + 1),
                y1: high(before[name]), y2: high(place[name]) });
        });
    places.forEach((place, i) => {
        const here = place.layer === current;
        if (here) draw(svg, 'line', {
            class: 'track-here', x1: across(i), x2: across(i), y1: '0%', y2: '100%' });
        if (place.value !== null) draw(svg, 'circle', {
            class: here ? 'track-current' : 'track-point', cx: across(i), cy: high(place.value),
            r: here ? 5 : 3.5 });
    });
    // The lowest and the highest value are written out, below and above the line.
    const known = places.filter(place => place.value !== null);
    const ranked = [...known].sort((one, other) => one.value - other.value);
    for (const place of new Set([ranked[0], ranked.at(-1)].filter(Boolean))) {
        const top = high(place.value), above = place.value < 0.5;
        draw(svg, 'text', { class: 'track-number', x: across(places.indexOf(place)), y: top,
            dx: 8, dy: above ? -6 : 14 }, place.value.toFixed(2));
    }
    const told = document.createElement('div');
    told.className = 'track-measured';
    told.textContent = known.length ? data.measured : '';
    const row = document.createElement('div');
    row.className = 'track-layers';
    const every = Math.ceil(places.length / MOST_NUMBERS);
    places.forEach((place, i) => {
        const button = document.createElement('button');
        button.type = 'button';
        button.title = place.told;
        button.setAttribute('aria-label', place.told);
        button.setAttribute('aria-pressed', String(place.layer === current));
        button.dataset.layer = place.layer;
        button.textContent = i % every === 0 || place.layer === current ? place.layer : '';
        button.onclick = () => setTriggerValue('picked', place.layer);
        row.append(button);
    });
    track.replaceChildren(told, svg, row);
    if (focused !== null)
        row.querySelector(`[data-layer="${focused}"]`)?.focus({ preventScroll: true });
}
