// One number per layer, as a line from 0 to 1; a click on a layer chooses it.
//
// data.measured   what the numbers are, in words
const MOST_NUMBERS = 12;

const high = share => `${94 - 88 * Math.min(Math.max(share, 0), 1)}%`;

export default function ({ data, parentElement, setTriggerValue }) {
    const { places, current } = data, drawn = [];
    const draw = (kind, attributes, ...inside) => drawn.push(element(kind, attributes, ...inside));
    const across = i => `${100 * (i + 0.5) / places.length}%`;
    for (const end of [0, 1]) {
        draw('line', { class: 'track-end', x1: 0, x2: '100%', y1: high(end), y2: high(end) });
        draw('text', { class: 'track-number', x: -6, y: high(end), 'text-anchor': 'end',
            'dominant-baseline': 'central' }, end);
    }
    for (const name of ['shuffled', 'value'])
        places.slice(1).forEach((place, i) => {
            const before = places[i];
            if (place[name] !== null && before[name] !== null) draw('line', {
                class: `track-${name}`, x1: across(i), x2: across(i + 1),
                y1: high(before[name]), y2: high(place[name]) });
        });
    places.forEach((place, i) => {
        const here = place.layer === current;
        if (here) draw('line', {
            class: 'track-here', x1: across(i), x2: across(i), y1: '0%', y2: '100%' });
        if (place.value !== null) draw('circle', {
            class: here ? 'track-current' : 'track-point', cx: across(i), cy: high(place.value),
            r: here ? 5 : 3.5 });
    });
    // The lowest and the highest value are written out, below and above the line.
    const known = places.filter(place => place.value !== null);
    const ranked = [...known].sort((one, other) => one.value - other.value);
    for (const place of new Set([ranked[0], ranked.at(-1)].filter(Boolean))) {
        const above = place.value < 0.5;
        draw('text', { class: 'track-number', x: across(places.indexOf(place)),
            y: high(place.value), dx: 8, dy: above ? -6 : 14 }, place.value.toFixed(2));
    }
    const every = Math.ceil(places.length / MOST_NUMBERS);
    const root = rootIn(parentElement, 'track');
    refill(root,
        element('div', { class: 'track-measured' }, known.length ? data.measured : ''),
        element('svg', { 'aria-hidden': 'true' }, ...drawn),
        element('div', { class: 'track-layers' }, ...places.map((place, i) => button({
            title: place.told, 'aria-label': place.told, 'aria-pressed': place.layer === current,
            'data-layer': place.layer, onclick: () => setTriggerValue('picked', place.layer),
        }, i % every === 0 || place.layer === current ? place.layer : ''))));
}
