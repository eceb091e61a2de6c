// The scripts of all components begin with this. Text from files is text, never markup.
const DRAWN = new Set(['svg', 'path', 'circle', 'g', 'line', 'rect', 'text', 'title']);

// Make an element. Attributes that begin with `on` are what it listens to; null leaves one out.
const element = (name, attributes = {}, ...inside) => {
    const made = DRAWN.has(name) ? document.createElementNS('http://www.w3.org/2000/svg', name)
        : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
        if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
        else if (value !== null) made.setAttribute(key, value);
    }
    made.append(...inside);
    return made;
};

const button = (attributes, ...inside) =>
    element('button', { type: 'button', ...attributes }, ...inside);

// What a component draws in, from the first time on.
const rootIn = (parent, kind) => parent.querySelector(`.${kind}`)
    ?? parent.appendChild(element('div', { class: kind }));

// Whether what the page says is older than what it was told last: `data.turn` is the number of the
// last telling that it has heard of, `one.turn` that of the last one, which `turned` counts.
const isLate = (one, data) => {
    one.turn = Math.max(one.turn ?? 0, data.turn);
    return data.turn < one.turn;
};
const turned = (one, told) => ({ ...told, turn: one.turn += 1 });

// Put other parts into a root; the button that has the focus is told by its data, and keeps it.
const refill = (root, ...parts) => {
    const told = one => JSON.stringify({ ...one.dataset });
    const focused = root.contains(document.activeElement) ? told(document.activeElement) : null;
    root.replaceChildren(...parts);
    if (focused !== null) [...root.querySelectorAll('button')].find(one => told(one) === focused)
        ?.focus({ preventScroll: true });
};
