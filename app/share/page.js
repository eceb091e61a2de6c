// A page of its own of what is shown: texts, pictures, the data behind them, and the link back. It
// has no script and asks for nothing, which its own policy says.
const MOST_ROWS = 200, MOST_SAVED = 20000; // rows of a table that are shown, and that the CSV has
const KEPT = { H5: 'h2', H1: 'h2', H2: 'h2', H3: 'h2', H4: 'h3', P: 'p', UL: 'ul', OL: 'ol', LI: 'li',
    STRONG: 'strong', EM: 'em', CODE: 'code', BR: 'br' };
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:";
const LOOK = `:root { color-scheme: light dark; }
body { font: 16px/1.5 Inter, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', sans-serif; margin: 0 auto;
    padding: 1.5rem; max-width: 60rem; overflow-wrap: anywhere; background: Canvas; color: CanvasText; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 1.6rem 0 .3rem; }
.of, figcaption, footer, small { opacity: .75; font-size: .875rem; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; border-radius: 8px;
    border: 1px solid color-mix(in srgb, CanvasText 20%, transparent); }
.note { border-left: 4px solid #E69F00; padding: .4rem .8rem; margin: 1rem 0; }
.scroll { overflow: auto; max-height: 30rem; } table { border-collapse: collapse; font-size: .8rem; }
:is(th, td) { padding: .15rem .6rem .15rem 0; text-align: left; vertical-align: top; }
summary { cursor: pointer; } a { color: LinkText; }`;

const cellText = cell => (cell.innerText ?? cell.textContent).replace(/\s+/g, ' ').trim();

// The tables behind a block: [{name, head, rows, of}]; of: how many rows there are in all.
const tablesOf = ({ part, name }) => {
    const found = [], map = part.querySelector('.lc-map')?.codeMap;
    const add = (head, rows, of = rows.length) => { if (rows.length) found.push({ name, head, rows, of }); };
    if (map?.values) for (const panel of map.panels) {
        const { colour, n } = map.data, chosen = new Set(map.selected);
        const rows = Array.from({ length: Math.min(n, MOST_SAVED) }, (_, i) => [
            i, panel.points[i], panel.points[n + i],
            ...colour.continuous ? [] : [colour.names[map.values[i]]], chosen.has(i) ? 'yes' : '']);
        found.push({ name: [name, panel.title.textContent].filter(Boolean).join(' '), rows, of: n,
            head: ['instance', 'x', 'y', ...colour.continuous ? [] : [colour.title], 'selected'] });
    }
    for (const plot of part.querySelectorAll('.js-plotly-plot')) add(...ofPlot(plot));
    for (const table of part.querySelectorAll('table')) {
        if (table.closest('.arcs-problem')) continue; // it has its scores for data
        const lines = [...table.querySelectorAll('tr')].map(row => [...row.children].map(cellText));
        const all = Number(table.getAttribute('aria-rowcount') ?? lines.length) - 1;
        if (lines.length > 1) add(lines[0], lines.slice(1), Math.max(all, lines.length - 1));
    }
    const told = [...part.querySelectorAll('[data-told]')];
    add(['shown'], told.map(one => [one.dataset.told]));
    for (const own of part.querySelectorAll('*')) // what a component offers itself
        for (const table of own.shareTables?.() ?? []) found.push({ of: table.rows.length, ...table });
    return found;
};

// The numbers of a chart: a row per point, or per cell.
const ofPlot = plot => {
    const rows = [], list = values => values?.length === undefined || typeof values === 'string' ? [] : Array.from(values);
    (plot._fullData ?? []).forEach((trace, number) => {
        const name = trace.name ?? `trace ${number}`, [x, y] = [list(trace.x), list(trace.y)];
        if (trace.z) {
            list(trace.z).forEach((line, i) => list(line).forEach((z, j) =>
                rows.push([name, x[j] ?? j, y[i] ?? i, z, '', ''])));
            return;
        }
        const along = trace.orientation === 'h' ? trace.error_x : trace.error_y;
        const [up, down] = [list(along?.array), list(along?.arrayminus)];
        for (let i = 0; i < Math.max(x.length, y.length); i++)
            rows.push([name, x[i] ?? '', y[i] ?? '', '', down[i] ?? up[i] ?? '', up[i] ?? '']);
    });
    const head = ['series', 'x', 'y', 'value', 'below', 'above'];
    const used = head.map((_, column) => column < 3 || rows.some(row => row[column] !== ''));
    const cut = row => row.filter((_, column) => used[column]);
    return [cut(head), rows.slice(0, MOST_SAVED).map(cut), rows.length];
};

const quoted = value => {
    const text = String(value ?? '');
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
};
const csv = ({ head, rows }) => [head, ...rows].map(row => row.map(quoted).join(',')).join('\n');
const short = value => typeof value === 'number' && !Number.isInteger(value) ? value.toPrecision(4) : String(value ?? '');

// The text of a block, without links, icons and whatever else the page needs to be used.
const texts = part => {
    const walk = node => {
        if (node.nodeType === Node.TEXT_NODE) return [node.data];
        if (node.nodeType !== Node.ELEMENT_NODE || node.matches(LEFT_OUT)
            || /Material/.test(getComputedStyle(node).fontFamily)) return [];
        const inside = [...node.childNodes].flatMap(walk), tag = KEPT[node.tagName];
        return tag ? [element(tag, {}, ...inside)] : inside;
    };
    const is = id => part.querySelector(`[data-testid=${id}]`);
    return element(is('stCaptionContainer') ? 'small' : 'div', { class: is('stAlert') ? 'note' : null },
        ...walk(part));
};

async function savedPage(title, link) {
    const body = [], data = [];
    for (const block of blocks()) {
        if (block.kind === 'text') {
            const told = texts(block.part);
            if (told.textContent.trim()) body.push(told);
            continue;
        }
        const drawing = block.kind === 'figure' ? await picture([block], '') : null;
        if (drawing) {
            for (const head of block.part.querySelectorAll('h5')) body.push(element('h2', {}, cellText(head)));
            drawing.setAttribute('role', 'img');
            drawing.setAttribute('aria-label', block.name);
            body.push(element('figure', {}, drawing));
        }
        for (const table of tablesOf(block)) {
            const told = table.of > table.rows.length ? `${table.rows.length} of ${table.of} rows` : `${table.rows.length} rows`;
            const file = `${table.name.replace(/\W+/g, '-')}.csv`;
            const address = await asData(new Blob([csv(table)], { type: 'text/csv;charset=utf-8' }));
            const drawn = element('table', {}, element('tr', {}, ...table.head.map(name => element('th', {}, name))),
                ...table.rows.slice(0, MOST_ROWS).map(row => element('tr', {}, ...row.map(value => element('td', {}, short(value))))));
            const part = element('details', block.kind === 'table' ? { open: '' } : {},
                element('summary', {}, `${table.name}: ${told}`),
                element('p', {}, element('a', { href: address, download: file }, file),
                    table.rows.length > MOST_ROWS ? ` has all of them; the first ${MOST_ROWS}:` : ''),
                element('div', { class: 'scroll' }, drawn));
            (block.kind === 'table' ? body : data).push(part);
        }
    }
    const page = document.implementation.createHTMLDocument(`${title} · latentcode`);
    page.documentElement.lang = 'en';
    page.head.append(element('meta', { charset: 'utf-8' }),
        element('meta', { 'http-equiv': 'Content-Security-Policy', content: POLICY }),
        element('meta', { name: 'viewport', content: 'width=device-width, initial-scale=1' }),
        element('style', {}, LOOK));
    page.head.prepend(page.head.querySelector('meta[charset]'));
    page.body.append(element('h1', {}, title), element('div', { class: 'of' }, caption(title)), ...body,
        ...data.length ? [element('h2', {}, 'Data'), ...data] : [],
        element('footer', {}, element('h2', {}, 'The same view, live'),
            element('p', {}, element('a', { href: link }, link)),
            element('p', {}, 'It opens where latentcode explore runs on the same folders; if it '
                + `runs at another address, put that in the place of ${location.host}. Saved ${new Date().toISOString().slice(0, 10)}.`)));
    return `<!DOCTYPE html>\n${page.documentElement.outerHTML}`;
}
