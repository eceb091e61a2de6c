// What a page shows, block by block, and the picture of some of them.
const GAP = 18, MARGIN = 16, LINE = 17; // pixels: between blocks, around them, of a caption's line
const SHARPNESS = 2; // pixels of a PNG per pixel of the screen, at least
const TEXTS = '[data-testid=stMarkdown], [data-testid=stHeading], [data-testid=stCaptionContainer], '
    + '[data-testid=stAlert], [data-testid=stMetric]';
const TABLES = '[data-testid=stDataFrame], [data-testid=stTable]';
const UNSAID = new Set(['v', 'weights', 'note', 'select', 'shared', 'kept', 'stays']);

const main = () => document.querySelector('[data-testid=stMainBlockContainer]');
const inWords = key => key.replace(/[-_]+/g, ' ').trim();

// What the page calls a block: the key of its component or of what holds it.
const nameOf = part => {
    for (let one = part; one && one !== main(); one = one.parentElement) {
        const key = [...one.classList].find(name => name.startsWith('st-key-'));
        if (key) return inWords(key.slice(7).replace(/^whole-/, '').replace(/-chart$/, ''));
    }
    return null;
};

// The blocks that can be seen, in the order of the page: {part, kind, box, name}.
const blocks = () => {
    const found = [];
    for (const part of main()?.querySelectorAll('[data-testid=stElementContainer]') ?? []) {
        if (part.querySelector('[data-testid=stElementContainer]')) continue;
        const box = part.getBoundingClientRect();
        if (box.width < 8 || box.height < 8 || !part.checkVisibility({ visibilityProperty: true })) continue;
        if (part.closest('details:not([open]), [data-testid=stPopoverBody], [role=dialog]')) continue;
        const told = part.querySelector(TEXTS) && !part.querySelector('.katex-display');
        const kind = part.querySelector(TABLES) ? 'table' : told ? 'text' : 'figure';
        found.push({ part, kind, box, name: nameOf(part) ?? kind });
    }
    const seen = new Map();
    for (const block of found) {
        const n = (seen.get(block.name) ?? 0) + 1;
        seen.set(block.name, n);
        if (n > 1) block.name += ` ${n}`;
    }
    return found;
};

// Where and of what a view is, in one line: the page and what its address says.
const caption = title => {
    const query = new URLSearchParams(location.search);
    const parts = [...query].filter(([name, value]) => !UNSAID.has(name) && value)
        .map(([name, value]) => `${name} ${value}`);
    return [`latentcode · ${title}`, ...parts].join(' · ');
};

// Lines of a text that is `width` pixels wide at most.
const broken = (text, font, width) => {
    const lines = [''];
    brush.font = font;
    for (const word of text.split(' ')) {
        const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
        if (lines.at(-1) && brush.measureText(longer).width > width) lines.push(word);
        else lines[lines.length - 1] = longer;
    }
    return lines;
};

const ground = () => {
    const app = document.querySelector('[data-testid=stApp]');
    const style = getComputedStyle(app);
    return { ground: plain(style.backgroundColor) ?? 'rgb(255, 255, 255)', ink: plain(style.color),
        family: style.fontFamily.replace(/"/g, "'") };
};

// Some blocks as one picture, null without anything to see: where they stand on the screen, without
// the gaps that controls leave.
async function picture(shown, words) {
    const made = [];
    for (const { part, box } of shown) {
        const drawing = new Drawing(box), group = shape('g');
        drawing.draw(part, group);
        if (drawing.top < drawing.bottom) made.push({ drawing, group, box });
    }
    if (!made.length) return null;
    made.sort((a, b) => a.drawing.top - b.drawing.top);
    const left = Math.min(...made.map(({ box }) => box.left));
    const width = Math.max(...made.map(({ box }) => box.right)) - left + 2 * MARGIN;
    let removed = made[0].drawing.top, end = removed;
    for (const { drawing, group, box } of made) {
        removed += Math.max(drawing.top - end - GAP, 0);
        end = Math.max(end, drawing.bottom);
        group.setAttribute('transform', `translate(${box.left - left + MARGIN} ${box.top - removed + MARGIN})`);
    }
    const height = end - removed;
    const look = ground(), font = `12px ${look.family}`;
    const lines = words ? broken(words, font, width - 2 * MARGIN) : [];
    const below = height + MARGIN + (lines.length ? 10 + LINE * lines.length : 0) + MARGIN;
    const svg = shape('svg', { xmlns: 'http://www.w3.org/2000/svg', width, height: below,
        viewBox: `0 0 ${Math.round(100 * width) / 100} ${Math.round(100 * below) / 100}` });
    await Promise.all(made.flatMap(({ drawing }) => drawing.waiting));
    const rules = (await Promise.all(made.map(({ drawing }) => drawing.rules()))).flat();
    const style = shape('style', {}, [...new Set(rules)].join('\n'));
    svg.append(...rules.length ? [style] : [],
        shape('rect', { width: '100%', height: '100%', fill: look.ground }),
        ...made.map(({ group }) => group),
        ...lines.map((line, i) => shape('text', {
            x: MARGIN, y: height + MARGIN + 20 + LINE * i, fill: look.ink, 'fill-opacity': 0.75,
            'font-size': 12, 'font-family': look.family }, line)));
    return svg;
}

const asText = svg => new XMLSerializer().serializeToString(svg);

// An SVG as a PNG.
async function painted(svg) {
    const image = new Image(), scale = Math.max(SHARPNESS, devicePixelRatio);
    image.src = URL.createObjectURL(new Blob([asText(svg)], { type: 'image/svg+xml' }));
    try {
        await image.decode();
        const canvas = document.createElement('canvas');
        canvas.width = Math.ceil(scale * svg.getAttribute('width'));
        canvas.height = Math.ceil(scale * svg.getAttribute('height'));
        const context = canvas.getContext('2d');
        context.drawImage(image, 0, 0, canvas.width, canvas.height);
        return await new Promise(done => canvas.toBlob(done, 'image/png'));
    } finally {
        URL.revokeObjectURL(image.src);
    }
}
