// Texts whose tokens are shaded by the attention that one of them, the query, gives to each.
//
// data.texts  [{title, pieces, query, rows}]: rows[q][k] is attention from 0 to 255
const FULL = 255, STRONGEST = 75;  // a whole attention, and how strong its shade is, in percent

class Text {
    constructor({ title, pieces, query, rows }) {
        Object.assign(this, { pieces, rows, own: query });
        this.tokens = pieces.map((piece, i) => element('span', {
            'data-token': i, onpointerenter: () => this.show(i), onclick: () => {
                this.own = i;
                this.show(i);
            } }, piece));
        this.told = element('div', { class: 'shaded-told', 'aria-live': 'polite' });
        this.box = element('div', {
            class: 'shaded-text', tabindex: 0, role: 'group',
            'aria-label': `${title}. Arrow keys choose the query`,
            onpointerleave: () => this.show(this.own),
            onkeydown: event => this.step(event) }, ...this.tokens);
        this.root = element('div', {}, element('h6', {}, title), this.box, this.told);
        this.show(query);
    }

    step(event) {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!by) return;
        event.preventDefault();
        this.own = Math.max(0, Math.min(this.pieces.length - 1, this.own + by));
        this.show(this.own);
    }

    show(query) {
        const row = this.rows[query];
        this.tokens.forEach((token, k) => {
            const share = k <= query ? row[k] / FULL : 0;
            token.className = k === query ? 'shaded-query' : k > query ? 'shaded-after' : '';
            token.style.background = share < 0.01 ? '' :
                `color-mix(in srgb, #E69F00 ${Math.round(STRONGEST * share)}%, transparent)`;
            token.title = k > query ? '' : (row[k] / FULL).toFixed(2);
        });
        const best = row.reduce((a, b, k) => b > row[a] ? k : a, 0);
        this.told.textContent = `${this.pieces[query]} → ${this.pieces[best]}: ` +
            `${(row[best] / FULL).toFixed(2)}`;
    }
}

export default function ({ data, parentElement }) {
    const root = rootIn(parentElement, 'shaded');
    const drawn = JSON.stringify(data.texts);
    if (root.drawn === drawn) return;
    root.drawn = drawn;
    root.replaceChildren(...data.texts.map(text => new Text(text).root));
}
