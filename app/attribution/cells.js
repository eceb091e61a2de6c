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

const box = (kind, ...inside) => element('div', { class: `cells-${kind}` }, ...inside);

const cell = (data, layer, number, pick) => {
    const { title, cells } = data.layers[layer], { text, own } = data.tokens[number];
    const { value, about } = cells[number];
    const share = Math.min(1, Math.abs(value) / (data.most || 1));
    return button({
        class: `cells-cell${own ? ' cells-own' : ''}`, title: about,
        style: `background-color: rgba(${value > 0 ? TOWARDS : AWAY}, ${0.85 * share})`,
        'aria-label': `${title}, ${about}`, 'data-layer': layer, 'data-token': number,
        'aria-pressed': data.written.some(([l, t]) => l === layer && t === number),
        onclick: () => pick([layer, number]),
    }, text);
};

export default function ({ data, parentElement, setTriggerValue }) {
    refill(rootIn(parentElement, 'cells'), ...data.layers.map(({ title }, layer) => {
        const problem = box('problem'), panels = [];
        data.tokens.forEach(({ panel }, number) => {
            const place = panel < 0 ? 0 : panel;
            panels[place] ??= problem.appendChild(box('panel'));
            panels[place].append(cell(data, layer, number, at => setTriggerValue('cell', at)));
        });
        problem.style.gridTemplateColumns = data.across ? `repeat(${data.across}, auto)` : '';
        return box('layer', box('title', title), problem);
    }));
}
