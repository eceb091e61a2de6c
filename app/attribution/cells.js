// A problem once per layer; each of its tokens is a cell, coloured by a number, that can be clicked.
//
// data.tokens   [{text, name, panel, own}]: in which panel of a grid, or -1; whether it is framed
// data.across   panels in a row of the grid, or 0
// data.layers   [{title, cells: [{value, about}]}], a cell per token
// data.most     the number that has the full colour
// data.written  [[layer, token]], those that are written
//
// Triggers `cell`, a layer and a token.
const TOWARDS = '213, 94, 0', AWAY = '0, 114, 178';

const made = (name, kind, text = '') => {
    const part = document.createElement(name);
    part.className = kind;
    part.textContent = text;
    return part;
};

const cell = (data, layer, number) => {
    const { value, about } = data.layers[layer].cells[number], token = data.tokens[number];
    const button = made('button', 'cells-cell', token.text);
    const share = Math.min(1, Math.abs(value) / (data.most || 1));
    button.style.backgroundColor = `rgba(${value > 0 ? TOWARDS : AWAY}, ${0.85 * share})`;
    button.title = about;
    button.setAttribute('aria-label', `${data.layers[layer].title}, ${about}`);
    button.classList.toggle('cells-own', token.own);
    const written = data.written.some(([l, t]) => l === layer && t === number);
    button.setAttribute('aria-pressed', written);
    button.dataset.layer = layer;
    button.dataset.token = number;
    return button;
};

export default function ({ data, parentElement, setTriggerValue }) {
    let root = parentElement.querySelector('.cells');
    if (!root) root = parentElement.appendChild(made('div', 'cells'));
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset : null;
    root.replaceChildren(...data.layers.map(({ title }, layer) => {
        const block = made('div', 'cells-layer'), problem = made('div', 'cells-problem');
        const panels = [];
        data.tokens.forEach(({ panel }, number) => {
            const place = panel < 0 ? 0 : panel;
            panels[place] ??= problem.appendChild(made('div', 'cells-panel'));
            panels[place].append(cell(data, layer, number));
        });
        problem.style.gridTemplateColumns = data.across ? `repeat(${data.across}, auto)` : '';
        block.append(made('div', 'cells-title', title), problem);
        return block;
    }));
    if (focused) root.querySelector(
        `[data-layer="${focused.layer}"][data-token="${focused.token}"]`)?.focus();
    root.onclick = event => {
        const { layer, token } = event.target.closest('.cells-cell')?.dataset ?? {};
        if (layer !== undefined) setTriggerValue('cell', [Number(layer), Number(token)]);
    };
}
