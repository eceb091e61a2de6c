// A problem whose tokens are shaded by the scores of heads, between a query and each of them.
//
// data.html     the problem, drawn by the library; tokens have their position as data-token
// data.scores   [head][token], of the query
// data.query    the query's position
// data.names    what each token shows
// data.colours  of the heads
// data.shown    the heads that are shown at first
const STRONGEST = 65;  // how strong the shade of the largest score is, in percent

export default function ({ data, parentElement }) {
    const root = rootIn(parentElement, 'attention');
    const n = data.scores.length, largest = Math.max(...data.scores.flat().map(Math.abs)) || 1;
    // What a person has switched stays, until the model has another number of heads.
    if (root.n !== n) Object.assign(root, { n, heads: null });
    const bar = element('div', { class: 'attention-heads', role: 'group', 'aria-label': 'Heads that are shown' });
    const told = element('div', { class: 'attention-told', 'aria-live': 'polite' });
    const problem = element('div', { class: 'attention-problem' });
    problem.innerHTML = data.html;  // by the library, which escapes what it shows
    const draw = () => {
        const heads = root.heads ?? data.shown;
        refill(bar, 'Heads', ...data.scores.map((_, head) => button({
            'data-head': head, 'aria-label': `head ${head}`, 'aria-pressed': heads.includes(head),
            style: `--head: ${data.colours[head]}`, onclick: () => use(heads.includes(head)
                ? heads.filter(other => other !== head) : [...heads, head].sort((a, b) => a - b)),
        }, head)), ...Object.entries({ strongest: null, all: data.scores.map((_, head) => head), none: [] })
            .map(([name, several]) => button({ onclick: () => use(several) }, name)));
        for (const token of problem.querySelectorAll('[data-token]')) {
            const key = Number(token.dataset.token), size = head => Math.abs(data.scores[head][key] ?? 0);
            // Of the heads that are shown, the one that scores a token highest has the colour.
            const best = heads.length ? heads.reduce((a, b) => size(b) > size(a) ? b : a) : null;
            token.style.backgroundColor = best === null ? 'transparent' : `color-mix(in srgb, ${
                data.colours[best]} ${Math.round(STRONGEST * size(best) / largest)}%, transparent)`;
            if (key === data.query) token.style.outline = '2px solid currentColor';
            token.onpointerenter = () => { told.textContent = key < data.names.length
                ? `${data.names[data.query]} → ${data.names[key]}: ` + heads.map(head =>
                    `head ${head} ${data.scores[head][key].toPrecision(3)}`).join(', ') : ''; };
        }
    };
    const use = heads => { root.heads = heads; draw(); };
    root.replaceChildren(bar, told, problem);
    draw();
}
